"""The SDK's transport: a process of the runtime for each call, with limits of time and of size.

The SDK's own transport (``a3s_box.runtime.A3SAsyncLocalRuntime``, 3.2.7) waits ten minutes, and reads whatever comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.backends.a3s.options import WITHIN, Runtime
from sandbox_console.backends.common.remote import ANSWER_S, MOST_BYTES, Silent
from sandbox_console.errors import (
    BackendError,
    BackendUnreachable,
    ConfigError,
    Conflict,
    ConsoleError,
    NotFound,
    UsageError,
)
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.hostfs.walk import led_by

PROTOCOL = 4
MOST_FILE_BYTES = 48 << 20
"""Of the answer to a command or a read file: two streams of 16 MiB in base64."""
LATE_S = 15.0
"""How long after its own time limit a command may be answered."""
_SLOW_S = 120.0
_SLOWEST_S = 1800.0
_CHUNK = 64 << 10
_COMPLAINT = 300
_LIMITS_S = {
    "image_pull": _SLOWEST_S,
    "image_list": ANSWER_S,
    "sandbox_list": ANSWER_S,
    "sandbox_get": ANSWER_S,
    "sandbox_inspect": ANSWER_S,
    "sdk_capabilities": ANSWER_S,
    "runtime_diagnostics": ANSWER_S,
}
"""For one answer; what is not here may take _SLOW_S."""
_LARGE = ("command_run", "file_read", "sandbox_logs")
_STALE = "it was started again, or made anew, by another program; start takes the present one for this console's own"


class Problem(Struct):
    """An error of the runtime."""

    code: str = ""
    message: str = ""


class _Envelope(Struct):
    protocol_version: int = 0
    ok: bool = False
    result: dict[str, Any] | None = None
    error: Problem | None = None


class Bridge:
    """The calls to one runtime. Raises ConsoleErrors, which the SDK passes on."""

    def __init__(self, label: str, runtime: Runtime, guests: Callable[[], GuestFolders]) -> None:
        self.label = label
        self._runtime, self._guests = runtime, guests
        self._told: dict[str, Any] | None = None

    async def request(self, request: Mapping[str, object]) -> dict[str, Any]:
        """One call. What the runtime can do is asked for once. Raises a ConsoleError."""
        operation = str(request.get("operation", ""))
        if operation != "sdk_capabilities":
            return await self._call(operation, request)
        if self._told is None:
            self._told = await self._call(operation, request)
        return self._told

    async def _call(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        what = f"{self.label}: {operation}"
        sent = msgspec.json.encode(dict(request))
        try:
            async with asyncio.timeout(_limit_s(operation, request)):
                out, err, code = await self._run(what, sent, MOST_FILE_BYTES if operation in _LARGE else MOST_BYTES)
        except TimeoutError:
            raise Silent(f"{what}: the runtime does not answer in time", hint="it may be hung; see its log") from None
        return _result(what, out, err, code)

    async def _run(self, what: str, sent: bytes, most: int) -> tuple[bytes, bytes, int]:
        """Start the program, in a group of its own that ends with a call which fails."""
        binary = await asyncio.to_thread(self._binary)
        env = {**os.environ, WITHIN: "1", **({"A3S_HOME": _path(self._runtime.home)} if self._runtime.home else {})}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                binary, "sdk-bridge", stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
            )
        except OSError as error:
            raise _absent(self.label, binary, error.strerror or str(error)) from None
        try:
            out, err = await _exchange(what, process, sent, most)
            return out, err, await process.wait()
        except BaseException:
            await _end(process)
            raise

    def _binary(self) -> str:
        """The program, found as the SDK finds it. Raises BackendUnreachable; ConfigError if others could change it."""
        wanted = self._runtime.binary or os.environ.get("A3S_BOX_BINARY") or "a3s-box"
        found = _path(wanted) if os.sep in wanted else shutil.which(wanted)
        if found is None:
            raise _absent(self.label, wanted, "it is not on PATH")
        ground = self._guests()
        inside = [str(Path(self._runtime.home).expanduser() / "state")] if self._runtime.home else []
        for path in (found, *inside):
            if root := led_by(path, ground):
                why = f"it lies in {root}, which a sandbox can write"
                raise ConfigError(f"{self.label}: {path} is not used: {why}", hint="keep it elsewhere")
        if why := another_hand(Path(found)):
            hint = "it must be yours, or root's, alone: chmod go-w, chown"
            raise ConfigError(f"{self.label}: {found} is not used: {why}", hint=hint)
        return found


async def _exchange(what: str, process: asyncio.subprocess.Process, sent: bytes, most: int) -> tuple[bytes, bytes]:
    """Send the call; returns the answer, and the beginning of what it complains of. Raises Silent."""
    assert process.stdin is not None  # noqa: S101 - these are pipes
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(process.stdin, sent))
            out = group.create_task(_whole(what, process.stdout, most))
            err = group.create_task(_beginning(process.stderr))
    except ExceptionGroup as found:
        raise found.exceptions[0] from None
    return out.result(), err.result()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it with all of its group. Its pipes are closed, as an end that was not read holds up its wait."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    await process.wait()


def _limit_s(operation: str, request: Mapping[str, object]) -> float:
    if operation == "command_run" and isinstance(asked := request.get("timeout_ms"), int):
        return asked / 1000 + LATE_S
    return _LIMITS_S.get(operation, _SLOW_S)


def _path(text: str) -> str:
    return str(Path(text).expanduser())


def _absent(label: str, binary: str, why: str) -> BackendUnreachable:
    hint = 'install A3S Box, or set binary = "/path/to/a3s-box" in the table of the runtime'
    return BackendUnreachable(f"{label}: {binary} cannot be started: {why}", hint=hint)


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended, which its answer or its code tells
        stdin.write(data)
        await stdin.drain()
    stdin.close()


async def _whole(what: str, stream: asyncio.StreamReader, most: int) -> bytes:
    found = bytearray()
    while chunk := await stream.read(_CHUNK):
        found += chunk
        if len(found) > most:
            text = f"{what}: the answer is larger than {most >> 20} MiB"
            raise Silent(text, hint="the console reads no more of it")
    return bytes(found)


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """The first bytes. The rest is read, so that the program is not held up, and thrown away."""
    found = b""
    while chunk := await stream.read(_CHUNK):
        found = (found + chunk)[:_COMPLAINT]
    return found


def _result(what: str, out: bytes, err: bytes, code: int) -> dict[str, Any]:
    """The result of an answer. Raises what its error means, and Silent for what is no answer."""
    hint = "is the program that of A3S Box, in a version that fits the package a3s-box?"
    try:
        envelope = msgspec.json.decode(out, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = err.decode("utf-8", "replace").strip() or str(error)
        raise Silent(f"{what}: the answer cannot be read (exit code {code}): {said}"[:_COMPLAINT], hint=hint) from None
    if envelope.protocol_version != PROTOCOL:
        text = f"{what}: the runtime speaks version {envelope.protocol_version} of the bridge, not {PROTOCOL}"
        raise Silent(text, hint=hint)
    if not envelope.ok:
        raise refusal(what, envelope.error or Problem())
    if envelope.result is None:
        raise Silent(f"{what}: the answer cannot be read: it has no result", hint=hint)
    return envelope.result


def refusal(what: str, problem: Problem) -> ConsoleError:
    """The error that a code of the runtime means (``src/sdk/src/bridge.rs`` of github.com/A3S-Lab/Box)."""
    text = f"{what}: {problem.message[:_COMPLAINT] or problem.code[:_COMPLAINT] or 'refused'}"
    match problem.code:
        case "not_found":
            return NotFound(text, hint="sandbox-console ls")
        case "conflict":
            return Conflict(text, hint=_STALE if "generation" in problem.message else "see its state and try again")
        case "invalid_request":
            return UsageError(text)
        case "unavailable":
            return BackendUnreachable(text, hint="the runtime lacks what this needs; see: a3s-box info")
    return BackendError(text, hint="the runtime's log tells more")
