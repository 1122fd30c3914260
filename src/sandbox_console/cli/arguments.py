"""The arguments of each verb. Values stay text here; the verb reads them when it runs."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from sandbox_console.cli import arguments_contents, arguments_program, arguments_records, arguments_specs

EVERYWHERE_DEFAULTS: dict[str, Any] = {
    "json": False,
    "config": None,
    "backend": "",
    "on_hosts": [],
    "read_only": False,
    "yes": False,
    "confirm": [],
    "only_answering": False,
}

Verbs = Any  # argparse's own class for it is private


@functools.cache
def everywhere(*, hosts: bool = True) -> argparse.ArgumentParser:
    """``--help`` and these options as a parent of other parsers. Making them for each of the 79 parsers costs 9 ms.

    ``hosts`` is False for the verbs whose own ``--host`` means something else; theirs stands before the verb.
    """
    parent = argparse.ArgumentParser()
    add_everywhere(parent, hosts=hosts)
    return parent


def add_everywhere(parser: argparse.ArgumentParser, *, hosts: bool = True) -> None:
    """The options that may stand before the verb or after it."""
    group = parser.add_argument_group("everywhere")
    keep = argparse.SUPPRESS  # so that a verb's default does not undo an option before the verb
    group.add_argument("--json", action="store_true", default=keep, help="JSON lines on stdout, errors as JSON")
    group.add_argument("--config", metavar="FILE", default=keep, help="the configuration file")
    group.add_argument("--backend", metavar="B", default=keep, help="only this backend (name or name/host)")
    if hosts:
        group.add_argument(
            "--host", metavar="H", dest="on_hosts", action="append", default=keep,
            help="only these hosts: a name or group, also as a pattern (web*), or a label (zone=eu)",
        )  # fmt: skip
    group.add_argument("--read-only", action="store_true", default=keep, help="deny every change")
    group.add_argument("--yes", action="store_true", default=keep, help="answer yes to what the policy asks")
    group.add_argument(
        "--confirm", metavar="ID", action="append", default=keep, help="the id that the policy asks to confirm"
    )
    group.add_argument(
        "--only-answering", action="store_true", default=keep, help="treat hosts that do not answer as empty"
    )


def add_verbs(verbs: Verbs) -> None:
    """All verbs, in the order of the help."""
    _add_seeing(verbs)
    arguments_specs.add(verbs, _verb)
    _add_lifecycle(verbs)
    _add_exec(verbs)
    _add_shell(verbs)
    _add_shells(verbs)
    _add_recordings(verbs)
    arguments_contents.add(verbs, _verb)
    _add_output(verbs)
    arguments_records.add(verbs, _verb)
    arguments_program.add(verbs, _verb)


_CONTAINER = "one of several containers (Kubernetes); by default the main one"


def _verb(verbs: Verbs, name: str, help: str, *, hosts: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=help, description=help, parents=[everywhere(hosts=hosts)], add_help=False
    )
    return parser


def _add_seeing(verbs: Verbs) -> None:
    ls = _verb(verbs, "ls", "list sandboxes: this console's in every state, other tools' while they run")
    ls.add_argument(
        "-l", "--label", metavar="KEY=VALUE", action="append", default=[], help="only sandboxes with this label"
    )
    ls.add_argument("-a", "--all", action="store_true", help="include stopped sandboxes of other tools")
    ls.add_argument("--watch", action="store_true", help="print each change until Ctrl+C")
    ls.add_argument("-q", "--quiet", action="store_true", help="only references, which can be used as NAME")
    ls.add_argument(
        "--format", metavar="TEMPLATE", default="", help="print each with a template, such as {{.Name}} {{.State}}"
    )
    ls.add_argument("--no-header", action="store_true", help="leave out the table's header")
    show = _verb(verbs, "show", "show one sandbox: its spec, and what is in effect")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("--toml", action="store_true", help="print the spec as TOML, which create -f can read")


def _add_lifecycle(verbs: Verbs) -> None:
    for name, about in (
        ("start", "start sandboxes"),
        ("stop", "stop sandboxes: SIGTERM, then SIGKILL after the grace period"),
        ("kill", "send a signal to sandboxes; SIGKILL ends the whole sandbox"),
        ("restart", "stop sandboxes, then start them"),
        ("pause", "freeze every process of sandboxes"),
        ("resume", "resume paused sandboxes"),
        ("rm", "remove sandboxes and everything stored for them"),
    ):
        verb = _verb(verbs, name, about)
        verb.add_argument("names", metavar="NAME", nargs="*", help="a name, backend:name, or backend/host/id")
        _add_selection(verb)
        if name in ("stop", "restart"):
            verb.add_argument("--grace", metavar="T", default="10s", help="time between the two signals")
        if name == "kill":
            verb.add_argument("--signal", metavar="SIG", default="SIGKILL", help="by default SIGKILL")
        if name == "rm":
            verb.add_argument("--force", action="store_true", help="remove it even if it is running")
    prune = _verb(verbs, "prune", "remove this console's sandboxes that have ended; lists them and asks first")
    prune.set_defaults(names=[])
    _add_selection(prune)
    wait = _verb(verbs, "wait", "wait until sandboxes have ended, and print their exit codes")
    wait.add_argument("names", metavar="NAME", nargs="+", help="a name, backend:name, or backend/host/id")
    wait.add_argument("--timeout", metavar="T", help="give up after this time; exit 9")


def _add_selection(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="instead of NAMEs: this console's sandboxes with the label; asks first",
    )  # fmt: skip
    verb.add_argument("--dry-run", action="store_true", help="with --label: only list them")


def _add_exec(verbs: Verbs) -> None:
    exec_ = _verb(verbs, "exec", "run a command in a sandbox; stdin is passed on unless it is a terminal")
    exec_.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    exec_.add_argument("--user", metavar="U", help="the user that runs it")
    exec_.add_argument("--workdir", metavar="D", help="the folder in which it runs")
    exec_.add_argument("--env", metavar="K=V", action="append", default=[], help="an environment variable")
    exec_.add_argument("--timeout", metavar="T", help="end its whole process tree after this time; exit 124")
    exec_.add_argument("--container", metavar="C", help=_CONTAINER)
    exec_.add_argument("--record", action="store_true", help="record its output; refused if that is not possible")


def _add_shell(verbs: Verbs) -> None:
    shell = _verb(verbs, "shell", "open a shell on this terminal")
    shell.add_argument("name", metavar="NAME", nargs="?", help="a name, backend:name, or backend/host/id")
    shell.add_argument("--shell", metavar="PATH", help="by default the best one in the image")
    shell.add_argument(
        "--busybox", action="store_true", help="bring this machine's static busybox, for an image without a shell"
    )
    shell.add_argument("--user", metavar="U", help="the user that runs it")
    shell.add_argument("--container", metavar="C", help=_CONTAINER)
    shell.add_argument("--workdir", metavar="D", help="the folder in which it starts")
    shell.add_argument("--env", metavar="K=V", action="append", default=[], help="an environment variable")
    shell.add_argument("--record", action="store_true", help="record it; refused if that is not possible")
    shell.add_argument(
        "--keep", action=argparse.BooleanOptionalAction, help="have it go on when it is left with Ctrl+] or this ends"
    )
    shell.add_argument("--as", metavar="SHELL", dest="as_", help="keep it under this name")
    shell.add_argument("--attach", metavar="SHELL", help="instead of NAME: come back to a kept shell")


def _add_shells(verbs: Verbs) -> None:
    shells = _verb(verbs, "shells", "kept shells, which go on when their console ends")
    of_shells = shells.add_subparsers(dest="what", metavar="VERB", required=True)
    _verb(of_shells, "ls", "list kept shells with their viewers")
    come = _verb(of_shells, "attach", "come back to a kept shell; --read-only only watches, Ctrl+] leaves it")
    come.add_argument("name", metavar="SHELL", help="a name or an id from shells ls")
    over = _verb(of_shells, "end", "end kept shells and what they started")
    over.add_argument("names", metavar="SHELL", nargs="+", help="a name or an id from shells ls")


def _add_recordings(verbs: Verbs) -> None:
    recordings = _verb(verbs, "recordings", "recorded shells and commands, as asciicast files")
    kept = recordings.add_subparsers(dest="what", metavar="VERB", required=True)
    _verb(kept, "ls", "list recordings, newest first, and check them against the audit log")
    play = _verb(kept, "play", "play a recording on this terminal")
    play.add_argument("id", metavar="ID", help="an id from recordings ls")
    play.add_argument("--speed", metavar="N", default="1", help="how many times as fast")
    play.add_argument("--idle", metavar="S", default="2", help="the longest pause, in seconds")
    search = _verb(kept, "search", "print the lines that contain a text, ignoring case; exit 1 if there are none")
    search.add_argument("text", metavar="TEXT", help="the text to look for")
    export = _verb(kept, "export", "export a recording")
    export.add_argument("id", metavar="ID", help="an id from recordings ls")
    export.add_argument("--format", metavar="F", default="cast", help="cast (asciicast v2) or text")
    export.add_argument("-o", "--output", metavar="FILE", help="write to a new file (mode 0600) instead of stdout")


def _add_output(verbs: Verbs) -> None:
    logs = _verb(verbs, "logs", "print the output of sandboxes, stdout and stderr")
    logs.add_argument("names", metavar="NAME", nargs="+", help="several logs are merged, with a name on each line")
    logs.add_argument("-f", "--follow", action="store_true", help="follow the log")
    logs.add_argument("--tail", metavar="N", help="only the last N lines of each")
    logs.add_argument("--since", metavar="T", help="10m (ago), or an ISO time")
    logs.add_argument("--until", metavar="T", help="10m (ago), or an ISO time")
    logs.add_argument("--timestamps", action="store_true", help="print each line with its time (UTC)")
    logs.add_argument("--grep", metavar="RE", help="only lines that match this regular expression")
    logs.add_argument("--container", metavar="C", help=_CONTAINER)
    logs.add_argument("--previous", action="store_true", help="only the run before the last restart")
    logs.add_argument("--stream", metavar="S", choices=("stdout", "stderr", "tty"), help="only this stream")
    stats = _verb(verbs, "stats", "print the resource use of running sandboxes")
    stats.add_argument("names", metavar="NAME", nargs="*", help="by default all that are running")
    stats.add_argument("--watch", action="store_true", help="print a sample every second until Ctrl+C")
