"""The calls to one runtime of A3S Box, through its SDK (``a3s-box`` 3.2.7 on PyPI).

The SDK decodes answers strictly; what it raises for one that it cannot decode is translated here. It turns the output
of commands into text, so those are asked for without it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.backends.a3s.bridge import Bridge
from sandbox_console.backends.a3s.options import Runtime
from sandbox_console.backends.common.buffered_process import Whole
from sandbox_console.backends.common.remote import ExitCode, Silent
from sandbox_console.errors import BackendUnreachable, Conflict, NotFound
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.sandbox import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from a3s_box import A3SAsyncBoxClient, AsyncSandbox, SandboxSummary

_DAY_S = 86_400.0
_CUT = "the runtime keeps only the beginning of a long output"
_Generation = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
T = TypeVar("T")


class Place(Struct, frozen=True):
    """A sandbox as the runtime calls it, and which of its generations is meant. Verbs on another are refused."""

    id: str
    generation: int


class Ended(Struct):
    """How a command ended, as the runtime tells it."""

    exit_code: ExitCode
    stdout_base64: str = ""
    stderr_base64: str = ""
    truncated: bool = False


class Inspected(Struct):
    """The identity of a sandbox."""

    sandbox_id: str
    generation: _Generation
    state: str
    isolation: str = "microvm"


class Client:
    """The calls of one runtime. Each is a process, so there is nothing to close."""

    def __init__(self, host: str, runtime: Runtime, guests: Callable[[], GuestFolders]) -> None:
        self.label = f"A3S Box runtime {host!r}"
        self._bridge = Bridge(self.label, runtime, guests)
        self._client: A3SAsyncBoxClient | None = None

    async def close(self) -> None:
        """Nothing stays open."""

    def sdk(self) -> A3SAsyncBoxClient:
        """The SDK's client. Raises BackendUnreachable if the package is not installed."""
        if self._client is None:
            try:
                from a3s_box import A3SAsyncBoxClient
            except ImportError:
                hint = "pip install 'sandbox-console-tui[a3s]'"
                raise BackendUnreachable(f"{self.label}: the package a3s-box is not installed", hint=hint) from None
            self._client = A3SAsyncBoxClient(self._bridge)
        return self._client

    def runtime(self) -> Bridge:
        """The transport, for what the SDK has as functions of a class. Raises BackendUnreachable as `sdk`."""
        self.sdk()
        return self._bridge

    async def call(self, what: str, asked: Awaitable[T]) -> T:
        """What the SDK returns. Raises a ConsoleError."""
        with self.translated(what):
            return await asked

    @contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Turn what the SDK raises into ConsoleErrors: for an answer that it cannot read, and for a wrong state."""
        from a3s_box import A3SBoxError

        try:
            yield
        except A3SBoxError as error:
            raise Silent(f"{self.label}: {what}: {error}"[:300], hint="see the versions of both") from None
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise Silent(f"{self.label}: {what}: the answer cannot be read: it lacks {error}"[:300]) from None
        except ValueError as error:
            raise Conflict(f"{self.label}: {what}: {error}"[:300]) from None

    async def every(self) -> Sequence[SandboxSummary]:
        """All sandboxes. Raises a ConsoleError, never an empty list for one that cannot be read."""
        return await self.call("list", self.sdk().list_sandboxes(all=True))

    async def one(self, id_: str) -> SandboxSummary:
        """One sandbox by its id. The runtime also takes names, which are not meant. Raises NotFound."""
        found = await self.call("get", self.sdk().get_sandbox(id_))
        if found is None or found.id != id_:
            raise NotFound(f"{self.label} has no sandbox {id_}", hint="sandbox-console ls")
        return found

    async def inspected(self, id_: str) -> Inspected:
        """Its generation and state. Raises NotFound."""
        return await self._asked("inspect", {"operation": "sandbox_inspect", "sandbox_id": id_}, Inspected)

    async def box(self, place: Place) -> AsyncSandbox:
        """The SDK's handle of this generation. Raises NotFound, and Conflict if there is another by now."""
        from a3s_box import AsyncSandbox

        self.sdk()
        found = await self.inspected(place.id)
        if found.generation != place.generation:
            text = f"{self.label}: sandbox {place.id} is of generation {found.generation}, not {place.generation}"
            hint = "another program started it again, or made it anew; start takes the present one for your own"
            raise Conflict(text, hint=hint)
        isolation: Any = found.isolation
        return AsyncSandbox(place.id, place.generation, found.state, isolation, self._bridge)

    async def run(
        self, place: Place, argv: Sequence[str], timeout_s: float | None = None, *,
        env: Mapping[str, str] | None = None, cwd: str | None = None, user: str | None = None,
    ) -> Whole:  # fmt: skip
        """Run a command to its end, as the bytes that it wrote. Raises a ConsoleError."""
        self.sdk()
        asked = {
            "operation": "command_run", "sandbox_id": place.id, "generation": place.generation, "argv": [*argv],
            "env": dict(env or {}), "timeout_ms": int((timeout_s or _DAY_S) * 1000),
            **({"cwd": cwd} if cwd else {}), **({"user": user} if user else {}),
        }  # fmt: skip
        ended = await self._asked("exec", asked, Ended)
        code = ended.exit_code
        end = Exit(code, code - 128 if 128 < code < 193 else None, reason=_CUT if ended.truncated else "")
        return Whole(end, self._bytes(ended.stdout_base64), self._bytes(ended.stderr_base64))

    async def events(self, place: Place) -> AsyncGenerator[Any, None]:
        """What happens to this generation, from its beginning, for as long as the caller iterates."""
        box, seen = await self.box(place), 0
        while True:
            batch = await self.call("events", box.events(after_sequence=seen, limit=256, wait_timeout_ms=1000))
            for event in batch.events:
                yield event
            seen = batch.next_sequence
            if not batch.events:
                yield None

    async def _asked(self, what: str, asked: Mapping[str, object], kind: type[T]) -> T:
        try:
            return msgspec.convert(await self._bridge.request(asked), kind)
        except msgspec.ValidationError as error:
            raise Silent(f"{self.label}: {what}: the answer cannot be read: {error}"[:300]) from None

    def _bytes(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise Silent(f"{self.label}: exec: the output cannot be read") from None
