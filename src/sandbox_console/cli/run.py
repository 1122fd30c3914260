"""Runs a verb and returns its exit code. Reports errors, obeys signals, and shows no traceback."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_console.cli import parser
from sandbox_console.cli.context import Context, Opener, OutputClosed, OutputFailed, Streams, print_error
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.cli.parser import GUEST_CODE_VERBS
from sandbox_console.cli.signals import Signals, Taken
from sandbox_console.errors import ConsoleError
from sandbox_console.service import find_paths, open_console

OWN_FAILURE = 125
"""The exit code of exec and shell for failures of the console itself, as with docker and timeout(1)."""

Verb = Callable[[Context], Awaitable[int]]


def run(
    args: argparse.Namespace,
    *,
    verb: Verb | None = None,
    opener: Opener = open_console,
    streams: Streams | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    """Run a parsed verb and return its exit code. SIGINT, SIGTERM and SIGHUP cancel it, which is recorded.

    ``verb`` is the function that runs it, by default the one of the verb's name.
    """
    context = Context(args, streams or Streams.standard(), opener, now)
    try:
        with Taken() as signals:
            verb = verb or find(args.verb)
            if not gc.isenabled():  # see __main__
                gc.freeze()
                gc.enable()
            return asyncio.run(_signalled(context, verb, signals))
    except OutputFailed as error:
        leave_stdout()
        print_error(context.streams.err, error, as_json=context.json)
        return exit_code(args.verb, error)
    except ConsoleError as error:
        add_next_step(error, args)
        print_error(context.streams.err, error, as_json=context.json)
        return exit_code(args.verb, error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OutputClosed:
        leave_stdout()
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in one line
        problem = unexpected(error)
        print_error(context.streams.err, problem, as_json=context.json)
        return exit_code(args.verb, problem)


def find(verb: str) -> Verb:
    """The function that runs a verb, imported now."""
    known = (_of_the_list, _of_specs, _inside, _of_the_console, _of_the_server, _of_incidents)
    return next((found for part in known if (found := part(verb)) is not None), None) or _lifecycle()


def _of_the_list(verb: str) -> Verb | None:
    """Find among the verbs that list, create or change sandboxes, snapshots and images."""
    match verb:
        case "ls":
            from sandbox_console.cli.ls import ls as found
        case "show":
            from sandbox_console.cli.ls import show as found
        case "wait":
            from sandbox_console.cli.wait import wait as found
        case "create":
            from sandbox_console.cli.create import create as found
        case "update":
            from sandbox_console.cli.update import update as found
        case "rename" | "commit" | "fork":
            from sandbox_console.cli.snapshots import derive as found
        case "snapshot":
            from sandbox_console.cli.snapshots import snapshot as found
        case "quarantine":
            from sandbox_console.cli.quarantine import run as found
        case "images":
            from sandbox_console.cli.images import images as found
        case _:
            return None
    return found


def _of_specs(verb: str) -> Verb | None:
    """Find among the verbs about specs and the files that they are read from."""
    match verb:
        case "schema":
            from sandbox_console.cli.create import schema as found
        case "templates":
            from sandbox_console.cli.templates import templates as found
        case "import":
            from sandbox_console.cli.importing import import_ as found
        case "drift":
            from sandbox_console.cli.drift import drift as found
        case "up" | "down":
            from sandbox_console.cli.up import run as found
        case _:
            return None
    return found


def _inside(verb: str) -> Verb | None:
    """Find among the verbs about what is inside a sandbox."""
    match verb:
        case "exec":
            from sandbox_console.cli.exec import exec_ as found
        case "shell":
            from sandbox_console.cli.shell import shell as found
        case "shells":
            from sandbox_console.cli.shells import shells as found
        case "logs":
            from sandbox_console.cli.logs import logs as found
        case "stats":
            from sandbox_console.cli.stats import stats as found
        case "cp":
            from sandbox_console.cli.files import cp as found
        case "attach":
            from sandbox_console.cli.exec import attach as found
        case "forward":
            from sandbox_console.cli.forward import forward as found
        case "top" | "diff" | "inspect" | "events" | "port":
            from sandbox_console.cli.inspect import inside as found
        case _:
            return None
    return found


def _of_the_console(verb: str) -> Verb | None:
    """Find among the verbs about what is on record, and about what the backends have."""
    match verb:
        case "audit":
            from sandbox_console.cli.audit import audit as found
        case "secrets":
            from sandbox_console.cli.secrets import secrets as found
        case "forget":
            from sandbox_console.cli.forget import forget as found
        case "recordings":
            from sandbox_console.cli.recordings import recordings as found
        case "egress":
            from sandbox_console.cli.egress import egress as found
        case "backends":
            from sandbox_console.cli.backends import backends as found
        case "doctor":
            from sandbox_console.cli.doctor import doctor as found
        case _:
            return None
    return found


def _of_the_server(verb: str) -> Verb | None:
    """Find among the verbs about who comes by the page, the API and MCP."""
    match verb:
        case "tokens":
            from sandbox_console.cli.tokens import tokens as found
        case "users":
            from sandbox_console.cli.users import users as found
        case "sessions":
            from sandbox_console.cli.sessions import sessions as found
        case _:
            return None
    return found


def _of_incidents(verb: str) -> Verb | None:
    """Find among the verbs about what went wrong."""
    match verb:
        case "why" | "timeline":
            from sandbox_console.cli.incident import incident as found
        case "bundle":
            from sandbox_console.cli.bundle import bundle as found
        case "watch":
            from sandbox_console.cli.watch import watch as found
        case "alerts":
            from sandbox_console.cli.alerts import alerts as found
        case _:
            return None
    return found


def _lifecycle() -> Verb:
    from sandbox_console.cli.lifecycle import lifecycle

    return lifecycle


def import_verbs(verbs: Iterable[str]) -> None:
    """Import what these verbs need with every backend here, so that a process forked from this one does not have to."""
    from sandbox_console.service import preload

    parser.subparsers(parser.build())
    for verb in sorted(verbs):
        find(verb)
    preload()


def exit_code(verb: str, error: ConsoleError) -> int:
    """An error's exit code, which is 125 if the verb returns the guest's code."""
    return OWN_FAILURE if verb in GUEST_CODE_VERBS else error.exit_code


def unexpected(error: Exception) -> ConsoleError:
    """A bug as one line for the user. A file gets type and stack, but no message or locals, which may hold secrets."""
    try:
        where = str(_write_crash(error))
    except OSError as failure:
        where = f"(not written: {failure.strerror})"
    except ConsoleError as failure:  # no folder to write it to
        where = f"(not written: {failure.message})"
    return ConsoleError(f"unexpected {type(error).__name__}", hint=f"the details are in {where}")


def _write_crash(error: Exception) -> Path:
    folder = find_paths().state / "crashes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("".join(traceback.format_tb(error.__traceback__)) + type(error).__qualname__ + "\n")
    return path


async def _signalled(context: Context, verb: Verb, signals: Signals) -> int:
    """Run the verb. A signal cancels it and sets the exit code, once everything that it did is recorded."""
    if code := signals.exit_code():
        return code
    task, loop = asyncio.ensure_future(verb(context)), asyncio.get_running_loop()
    signals.cancel_by(lambda: _soon(loop, task))
    pipe = context.streams.out.pipe() if _endless(context.args) else None
    if pipe is not None:  # the writing end of a pipe is never readable: epoll reports that the reader is gone
        loop.add_reader(pipe, signals.end, signal.SIGPIPE)
    try:
        return await task
    except asyncio.CancelledError:
        if code := signals.exit_code():
            return code
        raise
    finally:
        if pipe is not None:
            loop.remove_reader(pipe)


def _soon(loop: asyncio.AbstractEventLoop, task: asyncio.Task[int]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(task.cancel)


def _endless(args: argparse.Namespace) -> bool:
    """Whether a verb goes on until somebody ends it, which is pointless without a reader."""
    return bool(getattr(args, "follow", False) or getattr(args, "watch", False))


def leave_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python's flush at exit does not fail on a closed pipe or a full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
