"""Starts a sandbox's supervisor. Its order goes through a pipe, so it is in no argument list and in no file."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox_console.backends.bubblewrap import egress, jail, limits, ports, state, syscall_filter
from sandbox_console.backends.bubblewrap.binary import Bwrap
from sandbox_console.backends.bubblewrap.limits import Limiter
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.errors import BackendError, NotFound
from sandbox_console.model.cancellation import shielded, wait_until_done
from sandbox_console.model.secret import ResolvedSecret

_PROGRAM = Path(__file__).with_name("supervisor.py")
_MIB = 1 << 20


def order(
    record: state.Record, secrets: Sequence[ResolvedSecret], bwrap: Bwrap, limiter: Limiter, options: Options
) -> dict[str, Any]:
    """The settings for a supervisor."""
    spec = record.spec
    return {
        "id": record.id,
        "dir": str(record.folder),
        "bwrap": bwrap.path,
        "library": bwrap.library,
        "args": jail.words(spec, secrets, bwrap, options),
        "command": list(spec.command or jail.IDLE),
        "env": jail.environment(spec, secrets),
        "uid": record.uid,
        "seccomp": syscall_filter.program(spec).hex(),
        "egress": egress.prepare(record, options),
        "ports": ports.order(spec),
        "rlimits": limiter.rlimits(spec, options),
        "limits": limits.wanted(spec, options),
        "max_duration_s": spec.max_duration_s,
        "idle_timeout_s": spec.idle_timeout_s,
        "grace_s": options.grace_s,
        "log": {
            "bytes": options.log_mib * _MIB // options.log_files,
            "keep": options.log_files,
            "rate": options.log_rate_mib * _MIB,
        },
        "status": {
            "boot_id": state.boot_id(),
            "starts": record.raw.get("starts", 0) + 1,
            "seccomp": syscall_filter.word(spec),
        },
    }


async def launch(asked: dict[str, Any], name: str, others: Callable[[], Sequence[state.Record]]) -> None:
    """Start a supervisor and wait until the main command runs. Raises BackendError; Conflict for a taken port.

    ``others`` is used to find out whose sandbox has the port.

    A cancellation waits for the answer: until then, nobody could end what is being started.
    """
    talk = asyncio.ensure_future(_talk(asked))
    try:
        out, err = await shielded(talk)
    except asyncio.CancelledError:
        await wait_until_done(talk)
        raise
    if not out and not Path(asked["dir"]).is_dir():
        raise NotFound(f"{name} was removed while it was being started")
    if not out:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        raise BackendError(f"the supervisor of {name} ended at once: {lines[-1] if lines else 'it said nothing'}")
    answer = json.loads(out)
    if taken := answer.get("taken"):
        raise await asyncio.to_thread(ports.taken, taken, answer["hint"], name, others)
    if "error" in answer:
        command = " ".join(asked["command"][:1])
        missing = f"check that {command!r} is in the image" if answer["code"] in (126, 127) else ""
        raise BackendError(f"{name} cannot start: {answer['error']}", hint=answer.get("hint") or missing)


async def _talk(asked: dict[str, Any]) -> tuple[bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-X", "utf8", str(_PROGRAM), asked["id"],
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd="/", start_new_session=True, env={},
    )  # fmt: skip
    return await process.communicate(json.dumps(asked).encode())
