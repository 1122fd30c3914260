"""The arguments of the verbs that look into sandboxes, copy files, and keep images and snapshots."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

_NAME = "a name, backend:name, or backend/host/id"
_Add = Callable[[Any, str, str], argparse.ArgumentParser]


def add(verbs: Any, verb: _Add) -> None:
    """Add all of them. ``verb`` adds one with the common options."""
    _add_files(verbs, verb)
    _add_looks(verbs, verb)
    _add_incident(verbs, verb)
    _add_derived(verbs, verb)
    _add_images(verbs, verb)
    _add_snapshots(verbs, verb)


def _add_files(verbs: Any, verb: _Add) -> None:
    cp = verb(verbs, "cp", "copy files and folders out of a sandbox or into it, as docker cp does")
    cp.add_argument("source", metavar="SRC", help="NAME:/PATH or a local path; - is a tar on stdin")
    cp.add_argument("target", metavar="DST", help="a local path or NAME:/PATH; - is a tar on stdout")
    cp.add_argument("--container", metavar="C", help="one of several containers (Kubernetes)")
    cp.add_argument("-L", "--follow-link", action="store_true", help="copy a link's target, not the link")
    cp.add_argument("-a", "--archive", action="store_true", help="into a sandbox: keep the owners' ids")
    cp.add_argument("-q", "--quiet", action="store_true", help="do not show the progress")


def _add_looks(verbs: Any, verb: _Add) -> None:
    for name, about in (
        ("top", "print a sandbox's processes"),
        ("diff", "print the paths that differ from the image: A added, C changed, D deleted"),
        ("inspect", "print the backend's own description of a sandbox, with values of variables masked"),
        ("port", "print a sandbox's ports and where they are published"),
    ):
        verb(verbs, name, about).add_argument("name", metavar="NAME", help=_NAME)
    events = verb(verbs, "events", "print what happened to a sandbox, oldest first")
    events.add_argument("name", metavar="NAME", help=_NAME)
    events.add_argument("-f", "--follow", action="store_true", help="follow new events")
    events.add_argument("--since", metavar="T", help="10m (ago), or an ISO time")
    attach = verb(verbs, "attach", "attach to the main process's input and output; Ctrl+C detaches")
    attach.add_argument("name", metavar="NAME", help=_NAME)
    attach.add_argument("--no-stdin", action="store_true", help="only watch")
    attach.set_defaults(follow=True)
    forward = verb(verbs, "forward", "make ports of a running sandbox reachable on this machine, until Ctrl+C")
    forward.add_argument("name", metavar="NAME", help=_NAME)
    forward.add_argument(
        "ports", metavar="PORT", nargs="+", help="[ADDRESS:][HOST_PORT:]PORT (TCP): 8080:80, or 80 for a free port"
    )


def _add_incident(verbs: Any, verb: _Add) -> None:
    why = verb(verbs, "why", "say why a sandbox ended: the verdict, the evidence, and what happened around it")
    why.add_argument("name", metavar="NAME", help=_NAME)
    line = verb(verbs, "timeline", "print what happened, oldest first: events, actions, egress, errors in logs")
    line.add_argument("names", metavar="NAME", nargs="+", help=_NAME)
    line.add_argument("--since", metavar="T", help="10m (ago), or an ISO time")
    line.add_argument("--until", metavar="T", help="10m (ago), or an ISO time; exclusive")
    hold = verb(verbs, "quarantine", "contain sandboxes: freeze, no network, no commands, no removal; keep evidence")
    hold.add_argument("names", metavar="NAME", nargs="*", help=_NAME)
    hold.add_argument(
        "-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="instead of NAMEs: this console's sandboxes with the label; asks first",
    )  # fmt: skip
    hold.add_argument(
        "--filter", metavar="EXPR", default="",
        help="instead of NAMEs: those that fit, such as 'image=python:* state=running label.team!=ops'; asks first",
    )  # fmt: skip
    hold.add_argument("--reason", metavar="TEXT", default="", help="why, for the list and the audit log")
    hold.add_argument("--undo", action="store_true", help="end the quarantine: resume, restore egress, allow commands")
    hold.add_argument("--no-evidence", action="store_true", help="write no bundle and take no snapshot")
    hold.add_argument(
        "--dry-run", action="store_true", help="only list the sandboxes, the steps and what can be undone"
    )
    _add_alerts(verbs, verb)
    bundle = verb(verbs, "bundle", "keep evidence about sandboxes in a file that others can verify")
    bundle.add_argument(
        "words",
        metavar="NAME",
        nargs="+",
        help="sandboxes, with -o FILE; or verify FILE, to check one, or open FILE, to see it in the app",
    )
    bundle.add_argument("-o", "--output", metavar="FILE", help="write to this new file (.tar.zst, mode 0600)")
    bundle.add_argument("--until", metavar="T", help="only what was before this time: 10m (ago), or an ISO time")
    bundle.add_argument(
        "--files", metavar="SIZE", default="1M", help="keep changed files up to this size, by default 1M; 0 keeps none"
    )
    bundle.add_argument(
        "--public-key", metavar="FILE", help="with verify: only by this key, the output of audit public-key"
    )


def _add_alerts(verbs: Any, verb: _Add) -> None:
    watch = verb(verbs, "watch", "run the rules of [alerts] and send messages, without a screen, until Ctrl+C")
    watch.set_defaults(follow=True)
    watch.add_argument("--status-port", metavar="P", help="serve /status and /metrics at 127.0.0.1; 0 for a free port")
    alerts = verb(verbs, "alerts", "what the rules of [alerts] found, and the messages about it")
    verbs = alerts.add_subparsers(dest="what", metavar="VERB", required=True)
    verb(verbs, "ls", "list the alerts that fire").add_argument(
        "--all", action="store_true", help="include those that are over"
    )
    verb(verbs, "outbox", "list messages that have not arrived yet, with the reason")
    silence = verb(verbs, "silence", "send no messages of a rule for a while; without RULE list the silences")
    silence.add_argument("rule", metavar="RULE", nargs="?", help="a rule's name; * and ? stand for any letters")
    silence.add_argument("--sandbox", metavar="NAME", default="*", help="only about sandboxes of this name, or pattern")
    silence.add_argument("--for", metavar="T", dest="period", default="1h", help="90s, 15m, 2h; by default 1h")
    silence.add_argument("--reason", metavar="TEXT", default="", help="why, for the list and the audit log")
    silence.add_argument("--undo", metavar="ID", help="end this silence")
    test = verb(verbs, "test", "send a message over channels now, and say whether it arrived")
    test.add_argument("channels", metavar="CHANNEL", nargs="*", help="by default all of the configuration")


def _add_derived(verbs: Any, verb: _Add) -> None:
    for name, about, metavar, meaning in (
        ("rename", "rename a sandbox; its id stays the same", "NEW", "the new name"),
        ("commit", "make an image from a sandbox's root", "IMAGE", "the image's name"),
        ("fork", "make a running copy of a running sandbox", "NEW", "the copy's name"),
    ):
        parser = verb(verbs, name, about)
        parser.add_argument("name", metavar="NAME", help=_NAME)
        parser.add_argument("new", metavar=metavar, help=meaning)


def _add_images(verbs: Any, verb: _Add) -> None:
    images = verb(verbs, "images", "the images that sandboxes are made from")
    verbs = images.add_subparsers(dest="what", metavar="VERB", required=True)
    verb(verbs, "ls", "print all images")
    verb(verbs, "pull", "pull images from their registry").add_argument(
        "images", metavar="IMAGE", nargs="+", help="a name"
    )
    rm = verb(verbs, "rm", "remove images, or one of an image's names")
    rm.add_argument("images", metavar="IMAGE", nargs="+", help="a name or an id")
    rm.add_argument("--force", action="store_true", help="remove it even if a sandbox uses it")
    prune = verb(verbs, "prune", "remove images without a name")
    prune.add_argument("--all", action="store_true", help="all images that no sandbox uses")
    prune.add_argument("--dry-run", action="store_true", help="only say which, and how much space that would free")
    load = verb(verbs, "load", "load an image from an archive")
    load.add_argument("file", metavar="FILE", help="an archive from images save; - is stdin")
    save = verb(verbs, "save", "save an image to an archive")
    save.add_argument("image", metavar="IMAGE", help="a name or an id")
    save.add_argument("-o", "--output", metavar="FILE", help="by default stdout")


def _add_snapshots(verbs: Any, verb: _Add) -> None:
    snapshot = verb(verbs, "snapshot", "saved states of sandboxes")
    verbs = snapshot.add_subparsers(dest="what", metavar="VERB", required=True)
    create = verb(verbs, "create", "take a snapshot of a sandbox")
    create.add_argument("name", metavar="NAME", help=_NAME)
    create.add_argument("snapshot", metavar="SNAPSHOT", help="its name")
    create.add_argument("--full", action="store_true", help="save its memory as well as its disk")
    verb(verbs, "ls", "print all snapshots")
    restore = verb(verbs, "restore", "make a running sandbox from a snapshot")
    restore.add_argument("snapshot", metavar="SNAPSHOT", help="its name")
    restore.add_argument("name", metavar="NAME", help="the new sandbox's name")
    verb(verbs, "rm", "remove snapshots").add_argument("snapshots", metavar="SNAPSHOT", nargs="+", help="a name")
