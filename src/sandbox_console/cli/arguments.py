"""The arguments of each verb. Values stay text here; the verb reads them when it runs."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from sandbox_console.cli import arguments_inside
from sandbox_console.model.spec_fields import FIELDS, Kind

EVERYWHERE_DEFAULTS: dict[str, Any] = {
    "json": False,
    "config": None,
    "backend": "",
    "read_only": False,
    "yes": False,
    "confirm": [],
    "only_answering": False,
}

Verbs = Any  # argparse's own class for it is private


@functools.cache
def everywhere() -> argparse.ArgumentParser:
    """``--help`` and these options as a parent of parsers: made for each of the 79 parsers they cost 9 ms."""
    parent = argparse.ArgumentParser()
    add_everywhere(parent)
    return parent


def add_everywhere(parser: argparse.ArgumentParser) -> None:
    """The options that may stand before the verb or after it."""
    group = parser.add_argument_group("everywhere")
    keep = argparse.SUPPRESS  # so that one given before the verb is not undone by the verb's own default
    group.add_argument("--json", action="store_true", default=keep, help="JSON lines on stdout, errors as JSON")
    group.add_argument("--config", metavar="FILE", default=keep, help="the configuration file")
    group.add_argument("--backend", metavar="B", default=keep, help="only this backend (name or name/host)")
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
    _add_making(verbs)
    _add_lifecycle(verbs)
    _add_entering(verbs)
    arguments_inside.add(verbs, _verb)
    _add_output(verbs)
    _add_records(verbs)
    _add_egress(verbs)
    _add_console(verbs)


def _verb(verbs: Verbs, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=help, description=help, parents=[everywhere()], add_help=False
    )
    return parser


def _add_seeing(verbs: Verbs) -> None:
    ls = _verb(verbs, "ls", "list sandboxes: this console's in every state, other tools' while they run")
    ls.add_argument(
        "-l", "--label", metavar="KEY=VALUE", action="append", default=[], help="only sandboxes with this label"
    )
    ls.add_argument("--all", action="store_true", help="include stopped sandboxes of other tools")
    ls.add_argument("--watch", action="store_true", help="print each change until Ctrl+C")
    ls.add_argument("-q", "--quiet", action="store_true", help="only references, which can be used as NAME")
    ls.add_argument(
        "--format", metavar="TEMPLATE", default="", help="print each with a template, such as {{.Name}} {{.State}}"
    )
    ls.add_argument("--no-header", action="store_true", help="leave out the table's header")
    show = _verb(verbs, "show", "show one sandbox: its spec, and what is in effect")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("--toml", action="store_true", help="print the spec as TOML, which create -f can read")


def _add_making(verbs: Verbs) -> None:
    create = _verb(verbs, "create", "create a sandbox and start it; a command may follow --")
    create.add_argument("name", metavar="NAME", nargs="?", help="its name; by default the one in the file")
    create.add_argument("--no-start", action="store_true", help="create it without starting it")
    _add_spec(create)
    create.add_argument("--dry-run", action="store_true", help="say what would happen, but do nothing")
    update = _verb(verbs, "update", "change a sandbox's spec: live if possible, otherwise by recreating it")
    update.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    update.add_argument("--name", metavar="NEW", dest="rename", help="rename it")
    update.add_argument("--unset", metavar="FIELD", action="append", default=[], help="reset a field to its default")
    _add_spec(update)
    update.add_argument("--dry-run", action="store_true", help="print the plan, but do nothing")


def _add_spec(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("spec").add_argument
    add("-f", "--file", metavar="FILE", help="a spec in TOML or JSON; - is stdin; options override it")
    for field in FIELDS:
        if not field.option:
            continue
        names = [*([f"-{field.letter}"] if field.letter else []), f"--{field.option}"]
        match field.kind:
            case Kind.FLAG:
                add(*names, action="store_true", default=None, help=field.help)
            case Kind.LIST | Kind.TABLE:
                add(*names, metavar=field.metavar, action="append", help=field.help)
            case _:
                add(*names, metavar=field.metavar, choices=field.choices or None, help=field.help)


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


def _add_entering(verbs: Verbs) -> None:
    exec_ = _verb(verbs, "exec", "run a command in a sandbox; stdin is passed on unless it is a terminal")
    exec_.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    exec_.add_argument("--user", metavar="U", help="the user that runs it")
    exec_.add_argument("--workdir", metavar="D", help="the folder in which it runs")
    exec_.add_argument("--env", metavar="K=V", action="append", default=[], help="an environment variable")
    exec_.add_argument("--timeout", metavar="T", help="end its whole process tree after this time; exit 124")
    shell = _verb(verbs, "shell", "open a shell on this terminal")
    shell.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    shell.add_argument("--shell", metavar="PATH", help="by default the best one in the image")
    shell.add_argument("--user", metavar="U", help="the user that runs it")
    shell.add_argument("--record", action="store_true", help="record it; refused if that is not possible")
    recordings = _verb(verbs, "recordings", "recorded shells, as asciicast files")
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
    logs.add_argument("--stream", metavar="S", choices=("stdout", "stderr", "tty"), help="only this stream")
    stats = _verb(verbs, "stats", "print the resource use of running sandboxes")
    stats.add_argument("names", metavar="NAME", nargs="*", help="by default all that are running")
    stats.add_argument("--watch", action="store_true", help="print a sample every second until Ctrl+C")


def _add_span(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--since", metavar="T", help="from this time on: 10m (ago), or an ISO time")
    verb.add_argument("--until", metavar="T", help="before this time")


def _add_records(verbs: Verbs) -> None:
    audit = _verb(verbs, "audit", "the audit log: what was done, by whom, and how it ended")
    audits = audit.add_subparsers(dest="what", metavar="VERB", required=True)
    ls = _verb(audits, "ls", "list actions, newest first")
    ls.add_argument("--limit", metavar="N", default="50", help="how many actions")
    for word in ("action", "outcome", "actor", "target"):
        ls.add_argument(f"--{word}", metavar=word[0].upper(), default="", help=f"only this {word}")
    ls.add_argument(
        "--text", metavar="TEXT", default="", help="only with this text in the target, the action or the details"
    )
    _add_span(ls)
    ls.add_argument("--before", metavar="ID", help="the previous page: only actions older than this one")
    show = _verb(audits, "show", "show everything that is recorded about one action")
    show.add_argument("id", metavar="ID", help="a number from audit ls or from an error")
    verify = _verb(audits, "verify", "check the hash chain; if it is broken, name the first bad row and exit with 1")
    verify.add_argument("--folder", metavar="DIR", help="check another log: a copy of a console's audit folder")
    verify.add_argument("--archive", metavar="DIR", help="also check the segments that retention moved there")
    verify.add_argument(
        "--public-key", metavar="FILE", help="check without the log's secret, with the output of audit public-key"
    )
    _verb(audits, "public-key", "print the key with which another machine can verify this log")
    export = _verb(audits, "export", "export every row, oldest first, to stdout or a file")
    export.add_argument("--format", metavar="F", default="jsonl", help="jsonl (to verify), ocsf (for a SIEM) or csv")
    export.add_argument("-o", "--output", metavar="FILE", help="write to a new file (mode 0600) instead of stdout")
    _add_span(export)
    export.add_argument("--after", metavar="ID", default="0", help="only rows after this one")
    _verb(audits, "stats", "print how many rows there are, their size, who did what, and how it ended")
    ship = _verb(audits, "ship", "send new rows to the PostgreSQL server of [audit.ship]")
    ship.add_argument("--follow", action="store_true", help="keep sending until Ctrl+C")
    ship.add_argument("--init", action="store_true", help="create the table first")
    secrets = _verb(verbs, "secrets", "the secrets of the configuration, never their values")
    secret = secrets.add_subparsers(dest="what", metavar="VERB", required=True)
    _verb(secret, "ls", "list names, sources, hosts, and the sandboxes that use them")
    check = _verb(secret, "check", "read each secret and say whether that works, or search for leaked values")
    check.add_argument("--leaks", action="store_true", help="search for values in logs, specs, environments and files")
    check.add_argument("paths", metavar="PATH", nargs="*", help="with --leaks: files and folders to search as well")


def _add_egress(verbs: Verbs) -> None:
    words = _verb(verbs, "egress", "show what sandboxes may reach and tried to reach, and change it while they run")
    egress = words.add_subparsers(dest="what", metavar="VERB", required=True)
    show = _verb(egress, "show", "show the rules with the time left, and the hosts that were requested")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("-f", "--follow", action="store_true", help="print each decision until Ctrl+C")
    for name, about in (
        ("allow", "allow hosts, then check with the gateway that it took effect"),
        ("deny", "deny hosts, cut open tunnels to them, then check with the gateway"),
        ("remove", "remove rules by their patterns"),
    ):
        verb = _verb(egress, name, about)
        verb.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
        verb.add_argument("hosts", metavar="HOST", nargs="+", help="host, host:port or *.suffix")
        if name != "remove":
            verb.add_argument("--for", metavar="T", dest="period", help="90s, 15m, 2h; by default for ever")
    test = _verb(egress, "test", "say which rule decides about a host, without connecting; exit 1 if it is denied")
    test.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    test.add_argument("host", metavar="HOST[:PORT]", help="by default port 443")
    replay = _verb(egress, "replay", "try a draft on recorded traffic; exit 1 if it would newly deny something")
    replay.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    replay.add_argument("--egress", metavar="PATTERN", action="append", default=[], help="a pattern of the draft")
    replay.add_argument("--policy", metavar="FILE", help="a file with egress = [...]: a spec, or a configuration")
    replay.add_argument("--draft", metavar="FILE", help="a file with one rule per line, as in the app")
    replay.add_argument("--all", action="store_true", help="also list what does not change")
    for name, about in (
        ("ls", "list what was denied in all sandboxes, by host"),
        ("feed", "print each denial on a line of its own"),
    ):
        verb = _verb(egress, name, about)
        verb.add_argument("--all", action="store_true", help="include what was allowed")
        verb.add_argument("--since", metavar="T", help="only the last 10m, 2h, 1d")
        if name == "feed":
            verb.add_argument("-f", "--follow", action="store_true", help="follow new decisions until Ctrl+C")


def _add_console(verbs: Verbs) -> None:
    _verb(verbs, "doctor", "say what works on this machine, what does not, and what to do about it")
    _verb(verbs, "schema", "print the JSON Schema of a spec file, for editors")
    _verb(verbs, "backends", "list the backends; with --json, all that each one can do, or why it cannot")
    new = _verb(verbs, "new-backend", "write a working backend, with its package and a test that runs the suite")
    new.add_argument("name", metavar="NAME", help="its name in the configuration, such as my_cloud")
    new.add_argument("folder", metavar="FOLDER", nargs="?", default="", help="where to write it; by default NAME")
    completion = _verb(verbs, "completion", "print a script for a shell to complete verbs, options, names and labels")
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    _verb(verbs, "man", "print the manual page: sandbox-console man | man -l -")
    demo = _verb(verbs, "demo", "start real sandboxes and open the app on them; without a terminal, print a tour")
    demo.add_argument("--keep", action="store_true", help="keep the sandboxes at the end")
    tokens = _verb(verbs, "tokens", "manage who may use the page, the HTTP API and MCP")
    token = tokens.add_subparsers(dest="what", metavar="VERB", required=True)
    add = _verb(token, "add", "create a token and print it; it is not shown again")
    add.add_argument("name", metavar="NAME", help="whose token it is, for the audit log")
    add.add_argument("--scope", metavar="S", action="append", default=[], help="page, api or mcp; may be repeated")
    add.add_argument("--expires", metavar="T", help="when it expires: 90s, 15m, 2h, 30d")
    _verb(token, "ls", "list names, scopes and times; the tokens are stored only as hashes")
    rm = _verb(token, "rm", "revoke tokens, even while a server runs")
    rm.add_argument("names", metavar="NAME", nargs="+", help="a name or an id")
    serve = _verb(verbs, "serve", "serve the app to browsers, behind a login")
    serve.add_argument("--host", metavar="H", default="127.0.0.1", help="the address to listen on")
    serve.add_argument("--port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--token-file", metavar="FILE", help="a file of mode 0600 with the login token")
    serve.add_argument("--cert", metavar="FILE", help="a PEM certificate, for https")
    serve.add_argument("--key", metavar="FILE", help="its key, if the certificate's file does not contain it")
    serve.add_argument(
        "--hostname", metavar="NAME", action="append", default=[], help="another host name that browsers may use"
    )
    serve.add_argument("--insecure-no-tls", action="store_true", help="let other machines connect without TLS")
    serve.add_argument(
        "--pass-env", metavar="NAME", action="append", default=[], help="pass a variable to browser sessions"
    )
    serve.add_argument("--open", action="store_true", default=None, help="open the link in this machine's browser")
    serve.add_argument("--prefix", metavar="PATH", help="the path under which a proxy has it, as /console")
    serve.add_argument(
        "--trust-proxy", metavar="ADDRESS", action="append", default=[], help="a proxy's address; needs --hostname"
    )
    serve.add_argument("--socket", metavar="PATH", help="listen on a socket file for a proxy; needs --hostname")
    serve.add_argument("--max-sessions", metavar="N", help="how many sessions may run; by default 8")
    serve.add_argument("--keep", metavar="T", help="how long a session without a page lives; by default 8h")
    serve.add_argument(
        "--idle-timeout", metavar="T", help="end a shown session without a key for so long; by default 1h"
    )
    serve.add_argument("--api", action="store_true", help="also serve the HTTP API for agents, on its own port")
    serve.add_argument("--api-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--mcp", action="store_true", help="also serve MCP over HTTP, on its own port")
    serve.add_argument("--mcp-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--no-page", action="store_true", help="with --api or --mcp: do not serve the page")
    _verb(verbs, "mcp", "serve MCP on stdin and stdout, for an assistant that starts this command")
    share = _verb(verbs, "share", "share the app through a public relay, without a login; needs --yes")
    share.add_argument("--read-write", action="store_true", help="let viewers do what the policy allows, not only look")
    share.add_argument(
        "--environment", metavar="E", default="prod", help="the relay: prod, or local for one on this machine"
    )
