"""Reads secrets that a program prints (``op``, ``pass``, ``vault``, ``gh``).

The program runs without a shell and without a terminal, and has a time limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from sandbox_console.errors import Conflict, SecretError
from sandbox_console.hostfs.guest_writable import AROUND, GuestFolders
from sandbox_console.hostfs.walk import find
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.text import clean
from sandbox_console.secrets.local import MAX_BYTES, text_of
from sandbox_console.secrets.redactor import Redactor

_COMPLAINT_BYTES = 4096
_COMPLAINT_SHOWN = 200
_LIKE_A_TOKEN = re.compile(r"[A-Za-z0-9+/=_.:-]{20,}")


class Printed(Struct, frozen=True):
    """The result of a program: its exit code, and the beginnings of stdout and stderr."""

    code: int
    out: bytes
    err: bytes


def words_of(text: str) -> list[str]:
    """The argv of ``cmd:``: a JSON list, or words split as a shell would, without expanding anything.

    Raises ValueError.
    """
    if not text.lstrip().startswith("["):
        return shlex.split(text)
    words = json.loads(text)
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError("a list of texts is needed")
    return [str(word) for word in words]


def problem(text: str) -> str:
    """What is wrong with a ``cmd:`` reference; empty when nothing is."""
    try:
        words = words_of(text)
    except (ValueError, RecursionError):
        return 'cmd: cannot be read; write cmd:["program", "argument"]'
    if not words or not words[0]:
        return "cmd: names no program"
    return "cmd: has a NUL byte in it" if any("\0" in word for word in words) else ""


def name_of(text: str) -> str:
    """The program's name, without folder and arguments."""
    try:
        return os.path.basename(words_of(text)[0])  # noqa: PTH119 - it is text, not a path of ours
    except (ValueError, IndexError, RecursionError):
        return "?"


async def read(name: str, text: str, timeout_s: float) -> str:  # noqa: ARG001 - as all readers
    """The output of a program, without its last newline. Raises SecretError, which does not contain the value."""
    words = words_of(text)
    who = name_of(text)
    if await asyncio.to_thread(guests_own, words[0], AROUND.get()):
        raise SecretError(
            f"{who} is in a place where a sandbox can write", hint="name a program in a place of your own"
        )
    elsewhere = "/" if await asyncio.to_thread(guests_own, "./.", AROUND.get()) else None
    printed = await run(words, who, timeout_s, folder=elsewhere)
    if printed.code:
        raise SecretError(f"{who} ended with exit code {printed.code}{complaint(printed)}")
    if not printed.out:
        raise SecretError(f"{who} printed nothing{complaint(printed)}")
    return text_of(printed.out, who)


def guests_own(program: str, guest_folders: GuestFolders) -> bool:
    """Whether a guest could change what a path leads to. A bare name is looked up in PATH, without guests' folders."""
    if "/" not in program:
        return False
    try:
        with find(program, guest_folders) as found:
            if found.folder.root is not None or not found.is_folder:
                return found.folder.root is not None
            with found.folder.enter(found.name, guest_folders) as inner:
                return inner.root is not None
    except Conflict:
        return True
    except OSError:  # running the program reports this error
        return False


async def run(
    words: Sequence[str], who: str, timeout_s: float, env: Mapping[str, str] | None = None, folder: str | None = None,
    given: bytes = b"",
) -> Printed:  # fmt: skip
    """Run a program; ``given`` is what it reads from stdin.

    After its timeout, or on cancellation, it is killed with everything that it started.

    It runs in ``folder``, by default the current one. Many programs, such as git, obey files in their current folder.
    """
    process = await _started(words, who, env, folder, asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(timeout_s):
            if process.stdin is not None:
                process.stdin.write(given)
                process.stdin.close()
            return await _drained(process, who)
    except TimeoutError:
        hint = "it has no terminal to ask on; unlock it first, or raise timeout_s"
        raise SecretError(f"{who} did not end within {timeout_s:g} s", hint=hint) from None
    finally:
        await run_to_completion(_end(process))


async def _started(
    words: Sequence[str], who: str, env: Mapping[str, str] | None, folder: str | None, stdin: int
) -> asyncio.subprocess.Process:
    """Start a program. Raises SecretError if that is not possible."""
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # away from our terminal, where a prompt would take the screen's keys
            env=env,
            cwd=folder,
        )
    except FileNotFoundError:
        raise SecretError(f"{who} is not installed", hint=f"install {who}, or name it with its folder") from None
    except OSError as error:
        raise SecretError(f"{who} cannot be run: {error.strerror}") from None


async def _drained(process: asyncio.subprocess.Process, who: str) -> Printed:
    assert process.stdout is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    out, err = await asyncio.gather(_take(process.stdout, MAX_BYTES), _take(process.stderr, _COMPLAINT_BYTES))
    if len(out) > MAX_BYTES:
        raise SecretError(f"{who} prints more than {MAX_BYTES} bytes")
    return Printed(await process.wait(), out, err)


async def _take(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The first bytes of a stream, at most ``most + 1``. The rest is read and dropped, so that the writer can go on."""
    data = b""
    while part := await stream.read(65536):
        data = (data + part)[: limit + 1]
    return data


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # it has a session of its own
    await process.wait()


def complaint(printed: Printed) -> str:
    """The last line of stderr, without the secret's value and anything that looks like a token."""
    lines = printed.err.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return ""
    values = {printed.out.decode("utf-8", "surrogateescape").strip(), *_lines_of(printed.out)}
    masked = Redactor(value for value in values if value).text(lines[-1])
    return f": {clean(_LIKE_A_TOKEN.sub('[hidden]', masked), cap=_COMPLAINT_SHOWN)}"


def _lines_of(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").split()
