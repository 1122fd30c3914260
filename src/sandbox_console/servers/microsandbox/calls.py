"""The methods of the JSON-RPC, which run once the caller is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.errors import NotFound, UsageError
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.servers.microsandbox.interpreters import Interpreters
from sandbox_console.servers.microsandbox.protocol import Command, Metrics, Place, Repl, Start
from sandbox_console.servers.microsandbox.sandboxes import NAME, NAMESPACE, Sandboxes
from sandbox_console.service import TIMED_OUT_CODE

T = TypeVar("T", bound=Struct)
_MIB = 1 << 20


class Calls:
    """The methods by name. ``longest_s`` is the longest time that code or a command gets, whatever is requested."""

    def __init__(self, sandboxes: Sandboxes, interpreters: Interpreters, longest_s: float) -> None:
        self._sandboxes, self._interpreters, self._longest_s = sandboxes, interpreters, longest_s
        self.methods: Mapping[str, Callable[[str, msgspec.Raw], Awaitable[object]]] = {
            "sandbox.start": self._start,
            "sandbox.stop": self._stop,
            "sandbox.metrics.get": self._metrics,
            "sandbox.repl.run": self._repl,
            "sandbox.command.run": self._command,
        }

    async def _start(self, token: str, params: msgspec.Raw) -> str:
        """Start it; a running one with a new configuration is replaced, as the old server does."""
        asked = _read(params, Start)
        async with self._sandboxes.turn(token, asked):
            found = await self._sandboxes.find(token, asked)
            if asked.config is None or not asked.config.image:
                if found is None:
                    raise UsageError(f"no configuration for sandbox {asked.sandbox!r}", hint="config.image is needed")
                await self._sandboxes.handle_of(found).start()
            else:
                if found is not None:
                    await self._remove(found)
                await self._sandboxes.create(token, asked, asked.config)
        return f"Sandbox {asked.sandbox} started successfully"

    async def _stop(self, token: str, params: msgspec.Raw) -> str:
        """Stop it. It is removed, as old clients have no call for that."""
        asked = _read(params, Place)
        async with self._sandboxes.turn(token, asked):
            found = await self._sandboxes.find(token, asked)
            if found is None:
                raise NotFound(f"sandbox {asked.sandbox!r} not found", hint="it may have been stopped before")
            await self._remove(found)
        return f"Sandbox {asked.sandbox} stopped successfully"

    async def _metrics(self, token: str, params: msgspec.Raw) -> dict[str, list[dict[str, Any]]]:
        """The list. Use is measured if one sandbox is named: each takes a moment."""
        asked = _read(params, Metrics)
        rows = [
            one
            for one in await self._sandboxes.every(token)
            if asked.namespace in ("*", one.labels.get(NAMESPACE, "")) and asked.sandbox in (None, one.labels[NAME])
        ]
        return {"sandboxes": [await self._row(one, measured=asked.sandbox is not None) for one in rows]}

    async def _row(self, found: Sandbox, *, measured: bool) -> dict[str, Any]:
        sample = await self._sandboxes.sample(found) if measured else None
        memory = sample.memory_bytes if sample else None
        namespace = found.labels.get(NAMESPACE, "")
        return {
            **({"namespace": namespace} if namespace else {}),
            "name": found.labels[NAME],
            "running": found.status is Status.RUNNING,
            "cpu_usage": sample.cpu_percent if sample else None,
            "memory_usage": None if memory is None else -(-memory // _MIB),
            "disk_usage": None,
        }

    async def _repl(self, token: str, params: msgspec.Raw) -> dict[str, Any]:
        asked = _read(params, Repl)
        handle = await self._sandboxes.handle(token, asked)
        done = await self._interpreters.run(handle, asked.language, asked.code, self._seconds(asked.timeout))
        return {"status": done.status, "language": asked.language, "output": msgspec.to_builtins(done.output)}

    async def _command(self, token: str, params: msgspec.Raw) -> dict[str, Any]:
        asked = _read(params, Command)
        handle = await self._sandboxes.handle(token, asked)
        done = await handle.exec((asked.command, *asked.args), timeout_s=self._seconds(asked.timeout))
        code = TIMED_OUT_CODE if done.timed_out else done.exit_code
        return {
            "command": asked.command,
            "args": asked.args,
            "exit_code": -1 if code is None else code,
            "success": code == 0,
            "output": [*_lines(done.text, "stdout"), *_lines(done.error_text, "stderr")],
        }

    async def _remove(self, found: Sandbox) -> None:
        await self._interpreters.forget(found.ref)
        await self._sandboxes.handle_of(found).remove(force=True)

    def _seconds(self, asked: float | None) -> float:
        return min(asked or self._longest_s, self._longest_s)


def _read(params: msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(params, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"Invalid params: {error}"[:300]) from None


def _lines(text: str, stream: str) -> list[dict[str, str]]:
    found = text.split("\n")
    return [{"stream": stream, "text": line} for line in (found if found[-1] else found[:-1])]
