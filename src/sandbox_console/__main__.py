"""The command ``sandbox-console``: parses the arguments, then imports only the face that they need."""

from __future__ import annotations

import os
import sys

from sandbox_console.version import __version__

TYPE_CHECKING = False  # importing typing for it costs 8 ms of each command
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from sandbox_console.errors import ConsoleError
    from sandbox_console.tui.run import Opener
    from sandbox_console.web import ServeOptions

if sys.version_info < (3, 11):  # noqa: UP036 - a clear word where pip was made to ignore it
    sys.exit("sandbox-console needs Python 3.11 or newer")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. A command server carries it out if one is ready."""
    try:
        return _main(list(argv)) if argv is not None else _of_process(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def a3s_box() -> int:
    """The command ``sandbox-console-a3s-box``, which A3S_BOX_BINARY can name: its first word is ``sdk-bridge``."""
    return main(["a3s-box", *sys.argv[1:]])


def _of_process(words: list[str]) -> int:
    """Run what this process was started for. Only its own arguments go to a server, whose child takes its place."""
    if "OPENSSL_CONF" in os.environ or "OPENSSL_MODULES" in os.environ or "OPENSSL_ENGINES" in os.environ:
        from sandbox_console import openssl_config  # before OpenSSL is loaded

        if (problem := openssl_config.problem(words)) is not None:
            return _tell(words, problem)
    if (code := _of_console(words)) is not None:
        return code
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        from sandbox_console.cli.completion import complete

        complete()
    from sandbox_console.cli import signals
    from sandbox_console.command_server.served_calls import may_serve

    held = signals.hold()
    if not may_serve(words):
        return _main(words)
    from sandbox_console.command_server import client
    from sandbox_console.errors import ConsoleError

    try:
        served = client.carry_out(words, lambda: held.caught)
    except ConsoleError as error:
        return _tell(words, error)
    if served is None:
        served = _main(words)
        client.start()
    return served


def _of_console(words: list[str]) -> int | None:
    """Run a process that consoles start for themselves, and return its exit code; None if it is not one."""
    if words[:1] == ["command-server"]:
        return _command_server(words)
    if words[:1] == ["keeper"] and len(words) == 6:  # started by a backend that enforces time limits
        from sandbox_console.service.lifetime_keeper import main as keep

        return keep(words[1], words[2], words[3], words[4], int(words[5]))
    if words[:1] == ["shell-holder"]:  # by a console that opened a shell to keep
        from sandbox_console.shell_holder.main import main as hold

        return hold(words[1])
    if words[:1] == ["end-lost-shells"]:  # by the guard of a console that was killed
        from sandbox_console.cli.shell import end_lost

        return end_lost(words[2] if words[1:2] == ["--config"] else None)
    return None


def _command_server(words: list[str]) -> int:
    """``command-server FOLDER LOCK``: started by a command for later ones, with all imports done."""
    from sandbox_console.cli import signals
    from sandbox_console.cli.run import import_verbs
    from sandbox_console.command_server import server
    from sandbox_console.command_server.served_calls import SERVED

    import_verbs(SERVED)
    server.serve(words[1], int(words[2]), main, signals.hold)
    return 0


def _main(words: list[str]) -> int:
    from sandbox_console.cli import parser
    from sandbox_console.errors import ConsoleError

    try:
        try:
            args = parser.parse(words)
        except OSError as error:  # a long help, which Python did not hold until the flush
            return _unprinted(words, error)
        if args.version:
            return _printed(
                words, f'{{"version": "{__version__}"}}\n' if args.json else f"sandbox-console {__version__}\n"
            )
        return _face(args)
    except SystemExit as end:  # argparse has printed the help
        return _printed(words, "", int(end.code or 0))
    except ConsoleError as error:
        return _tell(words, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in one line
        from sandbox_console.cli.run import unexpected

        return _tell(words, unexpected(error))


def _printed(words: Sequence[str], text: str, code: int = 0) -> int:
    """Print and flush, or report the error: Python's own flush at exit would show a traceback."""
    try:
        print(text, end="", flush=True)  # noqa: T201
    except OSError as error:
        return _unprinted(words, error)
    return code


def _unprinted(words: Sequence[str], error: OSError) -> int:
    """Report that the output cannot be written, and return the exit code."""
    from sandbox_console.cli.run import leave_stdout
    from sandbox_console.errors import ConsoleError

    leave_stdout()
    if isinstance(error, BrokenPipeError):
        return 141
    return _tell(words, ConsoleError(f"the output cannot be written: {error.strerror}"))


def _face(args: argparse.Namespace) -> int:
    if args.verb is None:
        return _tui(args)
    if args.verb == "bundle" and args.output is None and args.words[0] == "open":
        from sandbox_console.cli.bundle import opener

        return _tui(args, opener(args))
    if args.verb == "watch" and args.status_port is not None:
        return _watch_with_status(args)
    if (face := _FACES.get(args.verb)) is not None:
        return face(args)
    import gc

    gc.disable()  # until the verb runs: collections during its imports take 4 % of the CPU of a short command
    from sandbox_console.cli.run import run

    return run(args)


def _new_backend(args: argparse.Namespace) -> int:
    from sandbox_console.service.bootstrap import known_ground
    from sandbox_console.testing.new_backend import tell

    return _printed([], tell(args.name, args.folder, known_ground(args.config), as_json=args.json))


def _completion(args: argparse.Namespace) -> int:
    from sandbox_console.cli.completion import shell_code

    return _printed([], shell_code(args.shell))


def _man(_: argparse.Namespace) -> int:
    from sandbox_console.cli.manual import page

    return _printed([], page())


def _demo(args: argparse.Namespace) -> int:
    from sandbox_console.cli.demo import demo
    from sandbox_console.cli.signals import release

    release()
    return demo(args)


def _watch_with_status(args: argparse.Namespace) -> int:
    from sandbox_console.cli.run import run
    from sandbox_console.errors import UsageError
    from sandbox_console.servers.run import watched
    from sandbox_console.service import open_console
    from sandbox_console.web.run import say_on_stderr

    if not args.status_port.isdecimal() or int(args.status_port) > 65535:
        raise UsageError(f"--status-port: {args.status_port!r} is not a port", hint="0 chooses a free one")
    return run(args, opener=watched(open_console, int(args.status_port), say_on_stderr))


def _tui(args: argparse.Namespace, opener: Opener | None = None) -> int:
    from pathlib import Path

    from sandbox_console.errors import UsageError

    in_browser = "TEXTUAL_DRIVER" in os.environ  # set by `serve`, whose terminal is in a browser
    if not in_browser and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal", hint="sandbox-console ls, or sandbox-console --help")
    if not in_browser and os.environ.get("TERM") == "dumb":
        raise UsageError("TERM=dumb: this terminal draws no screens", hint="set TERM, or: sandbox-console ls --watch")
    from sandbox_console.cli.signals import release
    from sandbox_console.tui import run_tui

    release()
    config = Path(args.config) if args.config else None
    return run_tui(
        config_file=config, read_only=args.read_only, backend=args.backend, hosts=args.on_hosts, opener=opener
    )


def _serve_options(args: argparse.Namespace, config: Path | None) -> ServeOptions:
    """What the command line says about the server."""
    from pathlib import Path

    from sandbox_console.web import ServeOptions

    return ServeOptions(
        host=args.host,
        port=int(args.port),
        read_only=args.read_only,
        backend=args.backend or None,
        config=config,
        token_file=Path(args.token_file) if args.token_file else None,
        cert=Path(args.cert) if args.cert else None,
        key=Path(args.key) if args.key else None,
        insecure_no_tls=args.insecure_no_tls,
        names=tuple(args.hostname),
        only_hosts=tuple(args.on_hosts),
        pass_env=tuple(args.pass_env),
    )


def _serve(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sandbox_console.cli.signals import release
    from sandbox_console.errors import UsageError
    from sandbox_console.web import serve

    for option in ("port", "api_port", "mcp_port", "status_port", "microsandbox_port"):
        if not (text := getattr(args, option)).isdecimal():
            name = option.replace("_", "-")
            raise UsageError(f"--{name}: {text!r} is not a number", hint="leave it out for a free one")
    config = Path(args.config) if args.config else None
    options = _with_table(_serve_options(args, config), args, config)
    release()
    if args.api or args.mcp or args.status or args.microsandbox:
        from sandbox_console.servers.run import Programs
        from sandbox_console.servers.run import serve as serve_programs

        programs = Programs(
            args.api, int(args.api_port), args.mcp, int(args.mcp_port), args.status, int(args.status_port),
            not args.no_page, args.microsandbox, int(args.microsandbox_port),
        )  # fmt: skip
        return serve_programs(options, programs)
    if args.no_page:
        raise UsageError("--no-page leaves nothing to serve", hint="add --api, --mcp, --microsandbox or --status")
    return serve(options)


def _desktop(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sandbox_console.cli.signals import release

    if args.install:
        from sandbox_console.web.desktop import install

        return _printed([], "".join(f"{path}\n" for path in install()))
    from sandbox_console.web import ServeOptions, desktop

    release()
    config = Path(args.config) if args.config else None
    return desktop(ServeOptions(read_only=args.read_only, backend=args.backend or None, config=config))


def _with_table(options: ServeOptions, args: argparse.Namespace, config: Path | None) -> ServeOptions:
    """The options, with defaults from the ``[serve]`` table of the configuration."""
    from pathlib import Path

    from msgspec.structs import replace

    from sandbox_console.cli.lifecycle import seconds
    from sandbox_console.errors import UsageError
    from sandbox_console.service.config import load
    from sandbox_console.service.paths import find_paths

    table = load(find_paths(config), required=config is not None).serve
    sessions = args.max_sessions or str(table.max_sessions)
    if not sessions.isdecimal():
        raise UsageError(f"--max-sessions: {sessions!r} is not a number", hint="leave it out for 8")
    socket = args.socket or table.socket
    return replace(
        options,
        open=table.open if args.open is None else args.open,
        names=options.names or table.hostname,
        prefix=(args.prefix if args.prefix is not None else table.prefix).rstrip("/"),
        trust_proxy=tuple(args.trust_proxy) or table.trust_proxy,
        user_header=table.user_header if args.user_header is None else args.user_header,
        oidc=table.oidc,
        socket=Path(socket).expanduser().absolute() if socket else None,
        max_sessions=int(sessions),
        resume_s=seconds(args.keep or table.keep, "keep"),
        idle_s=seconds(args.idle_timeout or table.idle_timeout, "idle-timeout"),
    )


def _mcp(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sandbox_console.cli.signals import release
    from sandbox_console.servers.mcp.stdio import serve_stdio

    release()
    config = Path(args.config) if args.config else None
    return serve_stdio(config, args.backend, args.on_hosts, read_only=args.read_only)


def _a3s_box(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sandbox_console.cli.signals import release
    from sandbox_console.servers.a3s_box.bridge import bridge

    release()
    config = Path(args.config) if args.config else None
    return bridge(config, args.backend, args.on_hosts, read_only=args.read_only)


def _ssh(args: argparse.Namespace) -> int:
    from sandbox_console.cli.run import run
    from sandbox_console.servers.ssh.verbs import proxy, ssh_config

    return run(args, verb=proxy if args.verb == "proxy" else ssh_config)


def _share(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sandbox_console.cli.signals import release
    from sandbox_console.errors import UsageError
    from sandbox_console.web import share
    from sandbox_console.web.share import ShareOptions

    if args.read_only and args.read_write:
        raise UsageError("--read-only and --read-write cannot be used together", hint="leave both out: it is read-only")
    options = ShareOptions(
        agreed=args.yes,
        read_write=args.read_write,
        environment=args.environment,
        backend=args.backend or None,
        config=Path(args.config) if args.config else None,
        only_hosts=tuple(args.on_hosts),
    )
    release()
    return share(options)


def _tell(words: Sequence[str], error: ConsoleError) -> int:
    """Report an error found before a verb ran. Its exit code is 125 for exec and shell, like any failure of ours."""
    from sandbox_console.cli.parser import GUEST_CODE_VERBS, split_command, verb_of

    own = split_command(words)[0]
    if "--json" in own:
        import json

        print(json.dumps(error.as_dict()), file=sys.stderr)  # noqa: T201
    else:
        from sandbox_console.model.text import clean

        hint = f"\nhint: {clean(error.hint)}" if error.hint else ""
        print(f"error: {clean(error.message)}{hint}", file=sys.stderr)  # noqa: T201
    return 125 if verb_of(own) in GUEST_CODE_VERBS else error.exit_code


_FACES = {
    "serve": _serve, "share": _share, "mcp": _mcp, "new-backend": _new_backend, "completion": _completion, "man": _man,
    "demo": _demo, "desktop": _desktop, "proxy": _ssh, "ssh-config": _ssh,
    "a3s-box": _a3s_box,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
