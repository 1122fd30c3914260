"""Brings a shell to a sandbox whose image has none: this machine's static BusyBox, in a folder that is in memory.

Both steps are actions, so the policy is asked and the audit log has them. The folder goes when the sandbox stops.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import struct
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from secrets import token_hex

from msgspec import structs

from sandbox_console.errors import ConsoleError, Denied, Unsupported
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.model.action import Exec, OpenShell, Upload
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.gate.gate import Consent, Performs
from sandbox_console.service.gate.operation import ExecIO

_NAME = ".sandbox-console-busybox"
BROUGHT_SHELL = f"/tmp/{_NAME}/sh"  # noqa: S108 - in the sandbox
"""Where a brought shell usually is: in another folder only if /tmp is not in memory."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST = 8 << 20
_PT_INTERP = 3
_NO_MEMORY = 3
_TRIED = ("/", "/tmp")  # noqa: S108 - in the sandbox; Docker's archive reaches no memory, bubblewrap's / may be read-only

_SCRIPT = f"""
me=$1 found=
for only in /tmp ""; do
    while read -r _ dir type options _; do
        case ",$type,$options," in *,noexec,*) continue;; ,tmpfs,rw,*) ;; *) continue;; esac
        case $dir in /dev/shm) ;; /dev|/dev/*|/proc|/proc/*|/sys|/sys/*|*\\\\*) continue;; esac
        [ "${{only:-$dir}}" = "$dir" ] || continue
        at=${{dir%/}}/{_NAME}
        if [ ! -x "$at/sh" ]; then
            "$me" mkdir -p -m 755 "$at" && "$me" cp "$me" "$at/busybox" && "$at/busybox" --install -s "$at" || continue
        fi
        found=$at
        break 2
    done </proc/mounts
done 2>/dev/null
"$me" rm -f "$me" 2>/dev/null || echo stays
[ "$found" ] || exit {_NO_MEMORY}
echo "$found"
"""


async def with_busybox(console: Performs, request: OpenShell, consent: Consent) -> OpenShell:
    """A request for a shell that this has brought, and whose programs it finds first.

    Raises Unsupported with the reason if none can be brought, Denied if the policy forbids a step.
    """
    program = await asyncio.to_thread(_program)
    carried = await _carry(console, request.ref, consent, program)
    folder = await _put_into_memory(console, request, consent, carried)
    return from_brought(request, f"{folder}/sh")


def from_brought(request: OpenShell, shell: str) -> OpenShell:
    """Return the request for a brought shell, whose programs are found first."""
    return structs.replace(request, shell=shell, env=programs_first(shell) | dict(request.env))


def programs_first(shell: str) -> dict[str, str]:
    """The variable by which the programs beside a brought shell are found first."""
    return {"PATH": f"{PurePosixPath(shell).parent}:{_PATH}"}


def _program() -> bytes:
    """Return this machine's BusyBox. Raises Unsupported if there is none that runs by itself."""
    found = shutil.which("busybox")
    if found is None:
        raise Unsupported("no shell can be brought: this machine has no busybox", hint="apt install busybox-static")
    if why := another_hand(Path(found)):
        raise Unsupported(f"no shell can be brought: {why}", hint="have a busybox that only root can change")
    with Path(found).open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST or not _static(data):
        raise Unsupported(f"no shell can be brought: {found} is not static", hint="apt install busybox-static")
    return data


def _static(data: bytes) -> bool:
    """Whether it is a 64-bit program that names no loader (ELF, PT_INTERP)."""
    if data[:6] not in (b"\x7fELF\x02\x01", b"\x7fELF\x02\x02"):
        return False
    order = "<" if data[5] == 1 else ">"
    [at] = struct.unpack_from(f"{order}Q", data, 32)
    size, count = struct.unpack_from(f"{order}HH", data, 54)
    kinds = [struct.unpack_from(f"{order}I", data, at + size * number)[0] for number in range(count)]
    return _PT_INTERP not in kinds


async def _carry(console: Performs, ref: SandboxRef, consent: Consent, program: bytes) -> str:
    """Put the program where the backend can. Returns its path. Raises Unsupported, Denied."""
    name = f"busybox-{token_hex(4)}"  # it runs an applet by its first argument if its own name begins so
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(program), 0o755
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(info, io.BytesIO(program))
    reasons = []
    for folder in _TRIED:
        try:
            await console.perform(Upload(ref, folder), consent=consent, io=ExecIO(_parts(archive.getvalue()))).result()
        except Denied:
            raise
        except ConsoleError as error:
            reasons.append(error.message)
        else:
            return f"{folder.rstrip('/')}/{name}"
    raise Unsupported(f"no shell can be brought: {'; '.join(dict.fromkeys(reasons))}")


async def _parts(data: bytes) -> AsyncIterator[bytes]:
    step = 1 << 16
    for at in range(0, len(data), step):
        yield data[at : at + step]


async def _put_into_memory(console: Performs, request: OpenShell, consent: Consent, carried: str) -> str:
    """Move it into a folder in memory from which programs run. Returns that. Raises Unsupported, Denied."""
    argv = (carried, "sh", "-c", _SCRIPT, "sh", carried)
    try:
        result = await console.perform(Exec(request.ref, argv, user=request.user), consent=consent).result()
    except Denied:
        raise
    except ConsoleError as error:
        raise _unrunnable(error.message, carried) from error
    said = result.stdout.decode("utf-8", "replace").split()
    if said[:1] == ["stays"]:
        remove = Exec(request.ref, (carried, "rm", "-f", carried), user="0")
        await console.perform(remove, consent=consent).result()
    if result.exit_code == _NO_MEMORY:
        raise Unsupported("no shell can be brought: the sandbox has no folder in memory from which programs run")
    if result.exit_code != 0 or not said or not said[-1].startswith("/"):
        why = result.exit.reason if result.exit is not None and result.exit.reason else f"exit code {result.exit_code}"
        raise _unrunnable(why, carried)
    return said[-1]


def _unrunnable(why: str, carried: str) -> Unsupported:
    """The error for a program that does not run there, so that it cannot remove itself either."""
    return Unsupported(
        f"this machine's busybox does not run there: {why}",
        hint=f"its file {carried} stays until the sandbox is removed",
    )
