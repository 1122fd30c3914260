"""The arguments of each verb. Values stay text here; the verb reads them when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from sandbox_console.cli import arguments_inside

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


def add_everywhere(parser: argparse.ArgumentParser) -> None:
    """The options that may stand before the verb or after it."""
    group = parser.add_argument_group("everywhere")
    keep = argparse.SUPPRESS  # so that one given before the verb is not undone by the verb's own default
    group.add_argument("--json", action="store_true", default=keep, help="JSON lines on stdout, errors as JSON")
    group.add_argument("--config", metavar="FILE", default=keep, help="the configuration file")
    group.add_argument("--backend", metavar="B", default=keep, help="only this backend (name or name/host)")
    group.add_argument("--read-only", action="store_true", default=keep, help="deny every change")
    group.add_argument("--yes", action="store_true", default=keep, help="agree to what the policy asks")
    group.add_argument(
        "--confirm", metavar="ID", action="append", default=keep, help="the id that the policy asks to confirm"
    )
    group.add_argument(
        "--only-answering", action="store_true", default=keep, help="take hosts that do not answer for empty"
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
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    add_everywhere(parser)
    return parser


def _add_seeing(verbs: Verbs) -> None:
    ls = _verb(verbs, "ls", "list sandboxes: ours in every state, others' running ones")
    ls.add_argument("-l", "--label", metavar="KEY=VALUE", action="append", default=[], help="only those that have it")
    ls.add_argument("--all", action="store_true", help="others' stopped ones too")
    ls.add_argument("--watch", action="store_true", help="go on with each change until Ctrl+C")
    ls.add_argument("-q", "--quiet", action="store_true", help="only references, which every NAME may be")
    ls.add_argument("--format", metavar="TEMPLATE", default="", help="a line each, such as {{.Name}} {{.State}}")
    ls.add_argument("--no-header", action="store_true", help="the table without its first line")
    show = _verb(verbs, "show", "show one sandbox: what was asked and what is effective")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("--toml", action="store_true", help="the spec as TOML, as create -f reads it")


def _add_making(verbs: Verbs) -> None:
    create = _verb(verbs, "create", "make a sandbox and start it; a command may follow --")
    create.add_argument("name", metavar="NAME", nargs="?", help="its name; the file's where it is left out")
    create.add_argument("--no-start", action="store_true", help="make it, do not start it")
    _add_spec(create)
    create.add_argument("--dry-run", action="store_true", help="tell what would happen, do nothing")
    update = _verb(verbs, "update", "bring a sandbox to another spec: live where it can be, else by a new one")
    update.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    update.add_argument("--name", metavar="NEW", dest="rename", help="give it another name")
    update.add_argument(
        "--unset", metavar="FIELD", action="append", default=[], help="take a field back to its default"
    )
    _add_spec(update)
    update.add_argument("--dry-run", action="store_true", help="print the plan, do nothing")


def _add_spec(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("spec").add_argument
    add("-f", "--file", metavar="FILE", help="a spec in TOML or JSON; - is stdin; options override it")
    add("--image", metavar="I", help="host or dir:PATH for bubblewrap, an image's name for docker")
    add("--cpus", metavar="N", help="vCPUs, may be a fraction")
    add("--memory", metavar="SIZE", help="512M, 2G")
    add("--pids", metavar="N", help="most processes")
    add("--egress", metavar="PATTERN", action="append", help="host, host:port or *.suffix; none is no network")
    add("-p", "--publish", metavar="PORT", action="append",
        help="[ADDRESS:][HOST_PORT:]PORT (TCP): 8080:80, or 80 for a free port of 127.0.0.1")  # fmt: skip
    add("--secret", metavar="NAME", action="append", help="a secret of the configuration")
    add("--workspace", metavar="DIR", help="a folder of this host, at /workspace")
    add("-l", "--label", metavar="K=V", action="append", help="a label")
    add("--env", metavar="K=V", action="append", help="a variable")
    add("--user", metavar="U", help="who runs the command")
    add("--workdir", metavar="D", help="where the command runs")
    add("--max-duration", metavar="T", help="ends it after 90s, 15m, 2h")
    add("--idle-timeout", metavar="T", help="ends it when idle for so long")
    add("--runtime", metavar="R", help="the engine's runtime")
    add("--read-only-root", action="store_true", default=None, help="the root filesystem cannot be written")
    add(
        "--limits", metavar="HOW", choices=("strict", "best-effort"), help="strict, or best-effort: unenforceable is ok"
    )
    add("--seccomp", metavar="HOW", choices=("on", "off"), help="off: system calls unfiltered, if the policy allows it")
    add("--ptrace", action="store_true", default=None, help="debuggers work in it, if the policy allows it")
    add("--nested-userns", action="store_true", default=None, help="sandboxes work in it, if the policy allows it")


def _add_lifecycle(verbs: Verbs) -> None:
    for name, about in (
        ("start", "start sandboxes that do not run"),
        ("stop", "SIGTERM, then SIGKILL after the grace"),
        ("kill", "send a signal; SIGKILL ends the whole sandbox"),
        ("restart", "stop, then start"),
        ("pause", "freeze every process"),
        ("resume", "thaw what pause froze"),
        ("rm", "remove sandboxes and all that is kept of them"),
    ):
        verb = _verb(verbs, name, about)
        verb.add_argument("names", metavar="NAME", nargs="*", help="a name, backend:name, or backend/host/id")
        _add_selection(verb)
        if name in ("stop", "restart"):
            verb.add_argument("--grace", metavar="T", default="10s", help="time between the two signals")
        if name == "kill":
            verb.add_argument("--signal", metavar="SIG", default="SIGKILL", help="SIGKILL if not given")
        if name == "rm":
            verb.add_argument("--force", action="store_true", help="also where it runs")
    prune = _verb(verbs, "prune", "remove those of ours that have ended, after a question that lists them")
    prune.set_defaults(names=[])
    _add_selection(prune)
    wait = _verb(verbs, "wait", "wait until sandboxes have ended; prints their exit codes")
    wait.add_argument("names", metavar="NAME", nargs="+", help="a name, backend:name, or backend/host/id")
    wait.add_argument("--timeout", metavar="T", help="give up after this time; exit 9")


def _add_selection(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="in place of NAMEs: those of ours that have it; asks first",
    )  # fmt: skip
    verb.add_argument("--dry-run", action="store_true", help="with --label: tell which, do nothing")


def _add_entering(verbs: Verbs) -> None:
    exec_ = _verb(verbs, "exec", "run a command in a sandbox; stdin is passed on unless it is a terminal")
    exec_.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    exec_.add_argument("--user", metavar="U", help="who runs it")
    exec_.add_argument("--workdir", metavar="D", help="where it runs")
    exec_.add_argument("--env", metavar="K=V", action="append", default=[], help="a variable")
    exec_.add_argument("--timeout", metavar="T", help="ends its whole process tree; exit 124")
    shell = _verb(verbs, "shell", "open a shell on this terminal")
    shell.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    shell.add_argument("--shell", metavar="PATH", help="the best one that is there if not given")
    shell.add_argument("--user", metavar="U", help="who runs it")
    shell.add_argument("--record", action="store_true", help="record it; refused where that cannot be done")
    recordings = _verb(verbs, "recordings", "shells on record, as asciicast files")
    kept = recordings.add_subparsers(dest="what", metavar="VERB", required=True)
    _verb(kept, "ls", "newest first, and whether each is as the audit log says")
    play = _verb(kept, "play", "show one as it was, on this terminal")
    play.add_argument("id", metavar="ID", help="as recordings ls gives it")
    play.add_argument("--speed", metavar="N", default="1", help="so many times as fast")
    play.add_argument("--idle", metavar="S", default="2", help="no pause is longer than so many seconds")
    search = _verb(kept, "search", "the lines with a text, in any case of letters; exit 1 where there is none")
    search.add_argument("text", metavar="TEXT", help="what to look for")
    export = _verb(kept, "export", "one as a file for others")
    export.add_argument("id", metavar="ID", help="as recordings ls gives it")
    export.add_argument("--format", metavar="F", default="cast", help="cast (asciicast v2) or text")
    export.add_argument("-o", "--output", metavar="FILE", help="a new file of mode 0600 instead of stdout")


def _add_output(verbs: Verbs) -> None:
    logs = _verb(verbs, "logs", "print what sandboxes wrote, stdout and stderr")
    logs.add_argument("names", metavar="NAME", nargs="+", help="several are merged, each line with its name")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as more comes")
    logs.add_argument("--tail", metavar="N", help="only the last N lines of each")
    logs.add_argument("--since", metavar="T", help="10m (ago), or an ISO time")
    logs.add_argument("--until", metavar="T", help="10m (ago), or an ISO time")
    logs.add_argument("--timestamps", action="store_true", help="each line with its time (UTC)")
    logs.add_argument("--grep", metavar="RE", help="only lines in which the regular expression is found")
    logs.add_argument("--stream", metavar="S", choices=("stdout", "stderr", "tty"), help="only this stream")
    stats = _verb(verbs, "stats", "print what running sandboxes use")
    stats.add_argument("names", metavar="NAME", nargs="*", help="all that run if none is given")
    stats.add_argument("--watch", action="store_true", help="go on with a sample a second until Ctrl+C")


def _add_span(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--since", metavar="T", help="from then on: 10m (ago), or an ISO time")
    verb.add_argument("--until", metavar="T", help="before then")


def _add_records(verbs: Verbs) -> None:
    audit = _verb(verbs, "audit", "what was done, by whom, and how it ended")
    audits = audit.add_subparsers(dest="what", metavar="VERB", required=True)
    ls = _verb(audits, "ls", "actions, newest first")
    ls.add_argument("--limit", metavar="N", default="50", help="how many")
    for word in ("action", "outcome", "actor", "target"):
        ls.add_argument(f"--{word}", metavar=word[0].upper(), default="", help=f"only this {word}")
    ls.add_argument(
        "--text", metavar="TEXT", default="", help="only with this in the target, the action or the details"
    )
    _add_span(ls)
    ls.add_argument("--before", metavar="ID", help="the page before: only older than this action")
    show = _verb(audits, "show", "one action with all that is on record of it")
    show.add_argument("id", metavar="ID", help="the number that audit ls and errors give")
    verify = _verb(audits, "verify", "walk the hash chain; exit 1 names the first row that does not hold")
    verify.add_argument("--folder", metavar="DIR", help="another log: a copy of a console's audit folder")
    verify.add_argument("--archive", metavar="DIR", help="also the segments that the retention moved there")
    verify.add_argument(
        "--public-key", metavar="FILE", help="without the log's secret, by what audit public-key printed"
    )
    _verb(audits, "public-key", "print what another machine verifies this log by")
    export = _verb(audits, "export", "every row, oldest first, to stdout or a file")
    export.add_argument("--format", metavar="F", default="jsonl", help="jsonl (to verify), ocsf (for a SIEM) or csv")
    export.add_argument("-o", "--output", metavar="FILE", help="a new file of mode 0600 instead of stdout")
    _add_span(export)
    export.add_argument("--after", metavar="ID", default="0", help="only rows behind this one")
    _verb(audits, "stats", "how many rows, how large, who did what, and how it ended")
    ship = _verb(audits, "ship", "send new rows to the PostgreSQL server of [audit.ship]")
    ship.add_argument("--follow", action="store_true", help="go on until Ctrl+C")
    ship.add_argument("--init", action="store_true", help="make the table first")
    secrets = _verb(verbs, "secrets", "the secrets that the configuration defines, never their values")
    secret = secrets.add_subparsers(dest="what", metavar="VERB", required=True)
    _verb(secret, "ls", "names, where they come from, which hosts they are for, and who uses them")
    check = _verb(secret, "check", "read each one and tell whether that works, or look for leaked ones")
    check.add_argument("--leaks", action="store_true", help="look for them in logs, specs, environments and files")
    check.add_argument("paths", metavar="PATH", nargs="*", help="with --leaks: files and folders to look into as well")


def _add_egress(verbs: Verbs) -> None:
    words = _verb(verbs, "egress", "what sandboxes may reach and what they tried, and changing it while they run")
    egress = words.add_subparsers(dest="what", metavar="VERB", required=True)
    show = _verb(egress, "show", "the rules with the time left, and the hosts asked for")
    show.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    show.add_argument("-f", "--follow", action="store_true", help="go on with each decision until Ctrl+C")
    for name, about in (
        ("allow", "allow hosts, then ask the gateway whether that took effect"),
        ("deny", "deny hosts, cut open tunnels to them, then ask the gateway"),
        ("remove", "take rules away by their patterns"),
    ):
        verb = _verb(egress, name, about)
        verb.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
        verb.add_argument("hosts", metavar="HOST", nargs="+", help="host, host:port or *.suffix")
        if name != "remove":
            verb.add_argument("--for", metavar="T", dest="period", help="90s, 15m, 2h; for good if not given")
    test = _verb(egress, "test", "tell which rule decides about a host, without connecting; exit 1 where it is denied")
    test.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    test.add_argument("host", metavar="HOST[:PORT]", help="port 443 if not given")
    replay = _verb(egress, "replay", "try a draft on the traffic on record; exit 1 where it would newly deny something")
    replay.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id")
    replay.add_argument("--egress", metavar="PATTERN", action="append", default=[], help="a pattern of the draft")
    replay.add_argument("--policy", metavar="FILE", help="a file with egress = [...]: a spec, or a configuration")
    replay.add_argument("--draft", metavar="FILE", help="a file with a rule a line, as in the app")
    replay.add_argument("--all", action="store_true", help="also what stays as it is")
    for name, about in (("ls", "what was denied in the whole fleet, by host"), ("feed", "each denial, one a line")):
        verb = _verb(egress, name, about)
        verb.add_argument("--all", action="store_true", help="what was allowed too")
        verb.add_argument("--since", metavar="T", help="only the last 10m, 2h, 1d")
        if name == "feed":
            verb.add_argument("-f", "--follow", action="store_true", help="go on as more comes, until Ctrl+C")


def _add_console(verbs: Verbs) -> None:
    _verb(verbs, "doctor", "tell what works here, what does not, and what to do about it")
    _verb(verbs, "backends", "each backend, whether it answers, and with --json all that it can do or why not")
    new = _verb(verbs, "new-backend", "write a backend that works, with its package and a test by the suite")
    new.add_argument("name", metavar="NAME", help="its name in the configuration, as my_cloud")
    new.add_argument("folder", metavar="FOLDER", nargs="?", default="", help="where to; by default one of that name")
    completion = _verb(verbs, "completion", "print what a shell reads to complete verbs, options, names and labels")
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    _verb(verbs, "man", "print the manual page: sandbox-console man | man -l -")
    demo = _verb(verbs, "demo", "real sandboxes on the best backend here, then the TUI; without a terminal a tour")
    demo.add_argument("--keep", action="store_true", help="do not remove them at the end")
    tokens = _verb(verbs, "tokens", "who may use the page, the HTTP API and MCP")
    token = tokens.add_subparsers(dest="what", metavar="VERB", required=True)
    add = _verb(token, "add", "make a token and print it, this once")
    add.add_argument("name", metavar="NAME", help="whose it is, for the audit log")
    add.add_argument("--scope", metavar="S", action="append", default=[], help="page, api or mcp; may be repeated")
    add.add_argument("--expires", metavar="T", help="it is refused after 90s, 15m, 2h, 30d")
    _verb(token, "ls", "names, scopes and times; of the tokens themselves only hashes are kept")
    rm = _verb(token, "rm", "refuse tokens from now on, also where a server runs")
    rm.add_argument("names", metavar="NAME", nargs="+", help="a name or an id")
    serve = _verb(verbs, "serve", "the TUI in a browser, behind a login")
    serve.add_argument("--host", metavar="H", default="127.0.0.1", help="where to listen")
    serve.add_argument("--port", metavar="P", default="0", help="0 takes a free one")
    serve.add_argument("--token-file", metavar="FILE", help="a file of mode 0600 with the login token")
    serve.add_argument("--cert", metavar="FILE", help="PEM certificate: https")
    serve.add_argument("--key", metavar="FILE", help="its key, where --cert does not hold it")
    serve.add_argument(
        "--hostname", metavar="NAME", action="append", default=[], help="a further name browsers may use"
    )
    serve.add_argument("--insecure-no-tls", action="store_true", help="other machines without TLS all the same")
    serve.add_argument(
        "--pass-env", metavar="NAME", action="append", default=[], help="a variable that browser sessions get too"
    )
    serve.add_argument("--api", action="store_true", help="the HTTP API for agents too, on a port of its own")
    serve.add_argument("--api-port", metavar="P", default="0", help="0 takes a free one")
    serve.add_argument("--mcp", action="store_true", help="MCP over HTTP too, on a port of its own")
    serve.add_argument("--mcp-port", metavar="P", default="0", help="0 takes a free one")
    serve.add_argument("--no-page", action="store_true", help="with --api or --mcp: without the page")
    _verb(verbs, "mcp", "MCP for an assistant that starts this, on stdin and stdout")
    share = _verb(verbs, "share", "the TUI through a public relay without a login; needs --yes")
    share.add_argument("--read-write", action="store_true", help="let viewers do what the policy allows, not only look")
    share.add_argument("--environment", metavar="E", default="prod", help="the relay: prod, or local for one here")
