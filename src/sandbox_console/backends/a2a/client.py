"""The calls of a2a_pack's HTTP interface, and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sandbox_console.backends.a2a.options import Runtime
from sandbox_console.backends.base import ReadKey
from sandbox_console.backends.common.remote import (
    ANSWER_S,
    LONGEST_TEXT,
    ExitCode,
    Remote,
    problem_of,
    refusal,
    segment,
)
from sandbox_console.errors import ConsoleError

_PATH = "/v1/sandboxes"
CREATE_S = 120.0
"""A platform may pull the image first."""


class Created(Struct, frozen=True):
    """The answer to a create: the runtime chooses the name."""

    name: str


class Ended(Struct, frozen=True):
    """The answer to a command."""

    exit_code: ExitCode
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


class _Problem(Struct):
    detail: str = ""
    hint: str = ""


class Client:
    """The calls to one runtime. The key and the grant are read when first needed, and again after a refusal."""

    def __init__(self, host: str, runtime: Runtime, key: ReadKey) -> None:
        self.label = f"a2a runtime {host!r}"
        self._runtime, self._read_key = runtime, key
        self._shown: Mapping[str, str] | None = None
        self._remote = Remote(self.label, runtime.url, self._headers, self._refused)

    async def close(self) -> None:
        """Close its connections."""
        await self._remote.close()

    async def names(self) -> Sequence[str]:
        """The names of all sandboxes that the key may see, which is all that is told of them."""
        what = "the names of its sandboxes"
        return self._remote.decoded(await self._remote.call("GET", _PATH, what), list[str], what)

    async def create(self, asked: Mapping[str, Any]) -> str:
        """Make and start a sandbox; returns its name."""
        data = await self._remote.call("POST", _PATH, "create", body=asked, timeout_s=CREATE_S)
        return self._remote.decoded(data, Created, "create").name

    async def delete(self, name: str) -> None:
        """Remove a sandbox; an unknown one is no error."""
        await self._remote.call("DELETE", f"{_PATH}/{segment(name)}", "delete", timeout_s=ANSWER_S * 5)

    async def run(self, name: str, body: Mapping[str, Any], timeout_s: float | None) -> Ended:
        """Run a command to its end."""
        path = f"{_PATH}/{segment(name)}/exec"
        data = await self._remote.call("POST", path, "exec", body=body, timeout_s=timeout_s)
        return self._remote.decoded(data, Ended, "exec")

    async def _headers(self) -> Mapping[str, str]:
        if self._shown is None:
            shown: dict[str, str] = {}
            if self._runtime.key:
                shown["Authorization"] = f"Bearer {await self._read_key(self._runtime.key)}"
            if self._runtime.grant:
                shown["X-A2A-Grant"] = await self._read_key(self._runtime.grant)
            self._shown = shown
        return self._shown

    def _refused(self, request: str, status: int, body: bytes) -> ConsoleError:
        if status in (401, 403):
            self._shown = None
        found = problem_of(body, _Problem)
        problem = _Problem(found) if isinstance(found, str) else found
        text, hint = problem.detail[:LONGEST_TEXT] or f"HTTP {status}", problem.hint[:LONGEST_TEXT]
        return refusal(f"{self.label}: {request}", status, text, "a2a", hint)
