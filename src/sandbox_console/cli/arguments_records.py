"""The arguments of the verbs that show what is recorded: the audit log, secrets, and egress."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

_Add = Callable[..., argparse.ArgumentParser]


def add(verbs: Any, verb: _Add) -> None:
    """Add all of them. ``verb`` adds one with the common options."""
    _add_audit(verbs, verb)
    _add_secrets(verbs, verb)
    _add_egress(verbs, verb)


def _add_span(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--since", metavar="T", help="from this time on: 10m (ago), or an ISO time")
    verb.add_argument("--until", metavar="T", help="before this time")


def _add_audit(verbs: Any, verb: _Add) -> None:
    audit = verb(verbs, "audit", "the audit log: what was done, by whom, and how it ended")
    audits = audit.add_subparsers(dest="what", metavar="VERB", required=True)
    ls = verb(audits, "ls", "list actions, newest first")
    ls.add_argument("--limit", metavar="N", default="50", help="how many actions")
    for word in ("action", "outcome", "actor", "target"):
        ls.add_argument(f"--{word}", metavar=word[0].upper(), default="", help=f"only this {word}")
    ls.add_argument(
        "--text", metavar="TEXT", default="", help="only with this text in the target, the action or the details"
    )
    _add_span(ls)
    ls.add_argument("--before", metavar="ID", help="the previous page: only actions older than this one")
    show = verb(audits, "show", "show everything that is recorded about one action")
    show.add_argument("id", metavar="ID", help="a number from audit ls or from an error")
    verify = verb(audits, "verify", "check the hash chain; if it is broken, name the first bad row and exit with 1")
    verify.add_argument("--folder", metavar="DIR", help="check another log: a copy of a console's audit folder")
    verify.add_argument("--archive", metavar="DIR", help="also check the segments that retention moved there")
    verify.add_argument(
        "--public-key", metavar="FILE", help="check without the log's secret, with the output of audit public-key"
    )
    verb(audits, "public-key", "print the key with which another machine can verify this log")
    export = verb(audits, "export", "export every row, oldest first, to stdout or a file")
    export.add_argument("--format", metavar="F", default="jsonl", help="jsonl (to verify), ocsf (for a SIEM) or csv")
    export.add_argument("-o", "--output", metavar="FILE", help="write to a new file (mode 0600) instead of stdout")
    _add_span(export)
    export.add_argument("--after", metavar="ID", default="0", help="only rows after this one")
    verb(audits, "stats", "print how many rows there are, their size, who did what, and how it ended")
    ship = verb(audits, "ship", "send new rows to the PostgreSQL server of [audit.ship]")
    ship.add_argument("--follow", action="store_true", help="keep sending until Ctrl+C")
    ship.add_argument("--init", action="store_true", help="create the table first")


def _add_secrets(verbs: Any, verb: _Add) -> None:
    secrets = verb(verbs, "secrets", "the secrets of the configuration, never their values")
    secret = secrets.add_subparsers(dest="what", metavar="VERB", required=True)
    verb(secret, "ls", "list names, sources, hosts, and the sandboxes that use them")
    add = verb(secret, "add", "define a secret in the configuration, by where its value comes from", hosts=False)
    add.add_argument("name", metavar="NAME", help="the variable that a sandbox gets, such as GITHUB_TOKEN")
    add.add_argument(
        "--from", metavar="SOURCE", dest="source", help="env:VARIABLE, file:PATH, keyring:SERVICE/USER or cmd:PROGRAM"
    )
    add.add_argument("--host", metavar="HOST", action="append", default=[], help="a host that the secret is for")
    add.add_argument("--inject", metavar="HOW", default="auto", help="auto, env, file or placeholder")
    add.add_argument("--value", action="store_true", help="read the value from stdin and store it in the keyring")
    rm = verb(secret, "rm", "remove secrets from the configuration; their values stay where they are")
    rm.add_argument("names", metavar="NAME", nargs="+", help="a name from secrets ls")
    check = verb(secret, "check", "read secrets and say whether that works, or search for leaked values")
    check.add_argument("--leaks", action="store_true", help="search for values in logs, specs, environments and files")
    check.add_argument(
        "words", metavar="NAME_OR_PATH", nargs="*",
        help="names from secrets ls, by default all; with --leaks: files and folders to search as well",
    )  # fmt: skip


def _add_egress(verbs: Any, verb: _Add) -> None:
    words = verb(verbs, "egress", "show what sandboxes may reach and tried to reach, and change it while they run")
    egress = words.add_subparsers(dest="what", metavar="VERB", required=True)
    show = verb(egress, "show", "show the rules with the time left, and the hosts that were requested")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("-f", "--follow", action="store_true", help="print each decision until Ctrl+C")
    for name, about in (
        ("allow", "allow hosts, then check with the gateway that it took effect"),
        ("deny", "deny hosts, cut open tunnels to them, then check with the gateway"),
        ("remove", "remove rules by their patterns"),
    ):
        parser = verb(egress, name, about)
        parser.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
        parser.add_argument("hosts", metavar="HOST", nargs="+", help="host, host:port or *.suffix")
        if name != "remove":
            parser.add_argument("--for", metavar="T", dest="period", help="90s, 15m, 2h; by default for ever")
    test = verb(egress, "test", "say which rule decides about a host, without connecting; exit 1 if it is denied")
    test.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    test.add_argument("host", metavar="HOST[:PORT]", help="by default port 443")
    replay = verb(egress, "replay", "try a draft on recorded traffic; exit 1 if it would newly deny something")
    replay.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    replay.add_argument("--egress", metavar="PATTERN", action="append", default=[], help="a pattern of the draft")
    replay.add_argument("--policy", metavar="FILE", help="a file with egress = [...]: a spec, or a configuration")
    replay.add_argument("--draft", metavar="FILE", help="a file with one rule per line, as in the app")
    replay.add_argument("--all", action="store_true", help="also list what does not change")
    for name, about in (
        ("ls", "list what was denied in all sandboxes, by host"),
        ("feed", "print each denial on a line of its own"),
    ):
        parser = verb(egress, name, about)
        parser.add_argument("--all", action="store_true", help="include what was allowed")
        parser.add_argument("--since", metavar="T", help="only the last 10m, 2h, 1d")
        if name == "feed":
            parser.add_argument("-f", "--follow", action="store_true", help="follow new decisions until Ctrl+C")
    offered = verb(egress, "presets", "list presets of hosts, or print the hosts of some, one per line")
    offered.add_argument("presets", metavar="PRESET", nargs="*", help="such as pypi, npm, debian or github")
    offered.add_argument("--image", metavar="I", help="for dir:PATH, the sources of the apt in that folder")
