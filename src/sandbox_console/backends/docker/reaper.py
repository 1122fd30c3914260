"""Ends a command and everything that it started. Closing its socket would not end anything.

Every process of the command has a mark in its environment. A second command looks for the mark in ``/proc/*/environ``,
adds the descendants of those it finds, and signals them all. If it finds none it looks a second time: a process that is
executing another program has no environment for a moment. It runs as the command's user, with the same rights. A
process that cleared its environment *and* left its parents is not found.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_console.backends.docker import podman_dialect
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.labels import HELPER
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.errors import BackendError

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

VARIABLE = "SANDBOX_CONSOLE_EXEC"
PATIENCE_S = 10.0
_LEFT = 3
"""The script's exit code if a process with the mark is left after its last round."""

# It has builtins only, so it needs nothing but /bin/sh. $1 is the mark, $2 the signal, $3 the maximum number of rounds.
_SCRIPT = r"""
round=0 none=0
while [ $round -lt $3 ]; do
  round=$((round + 1)); pairs=; found=' '
  for d in /proc/[0-9]*; do
    p=${d#/proc/}; [ "$p" = $$ ] && continue
    while read -r k v _; do [ "$k" = PPid: ] && { pairs="$pairs $p:$v"; break; }; done 2>/dev/null <"$d/status"
    while IFS= read -r e || [ -n "$e" ]; do
      case $e in *"$1"*) found="$found$p "; break ;; esac
    done 2>/dev/null <"$d/environ"
  done
  if [ "$found" = ' ' ]; then
    [ $none = 1 ] && exit 0
    none=1; continue
  fi
  none=0 again=1
  while [ $again = 1 ]; do
    again=0
    for x in $pairs; do
      case $found in *" ${x%:*} "*) continue ;; esac
      case $found in *" ${x#*:} "*) found="$found${x%:*} "; again=1 ;; esac
    done
  done
  for p in $found; do kill -s $2 $p 2>/dev/null; done
done
exit 3
"""


def new_mark() -> str:
    """A mark that nobody can guess."""
    return secrets.token_hex(16)


class Reaper:
    """Ends the processes with one mark in one container."""

    def __init__(self, engine: Engine, container: str, user: str, mark: str) -> None:
        self._engine = engine
        self._container = container
        self._user = user
        self._mark = mark

    async def hang_up(self) -> None:
        """Ask the processes to end."""
        await self._signal("HUP", 1)

    async def freeze(self) -> None:
        """Stop all processes, as a shell would go on if its command were killed before it."""
        await self._signal("STOP", 1)

    async def kill(self) -> None:
        """End all processes, including those that fork meanwhile. Raises BackendError if some are left."""
        code = await self._signal("KILL", 50)
        if code == 0 or await self._from_this_host():
            return
        # On a busy machine, killed processes can take longer to go than all rounds of the first run.
        if code == _LEFT and (code := await self._signal("KILL", 50)) == 0:
            return
        reason = (
            "it is still there after SIGKILL" if code == _LEFT else "the image has no working /bin/sh to end it with"
        )
        raise BackendError(f"the command may still run: {reason}", hint="stop or kill the sandbox")

    async def _signal(self, name: str, rounds: int) -> int:
        """The helper's exit code; 0 if nothing with the mark is left, or the container is not running."""
        body = {
            "Cmd": ["/bin/sh", "-c", _SCRIPT, HELPER, self._mark, name, str(rounds)],
            "User": self._user,
            "AttachStdout": True,
        }
        try:
            made = await self._engine.call("POST", container_path(self._container, "exec"), body=body)
            async with asyncio.timeout(PATIENCE_S):
                await self._engine.call("POST", f"exec/{made['Id']}/start", body={"Detach": False, "Tty": False})
            return int((await self._engine.call("GET", f"exec/{made['Id']}/json"))["ExitCode"] or 0)
        except Refused as error:
            ended = error.status in (404, 409) or podman_dialect.NOT_RUNNING in error.message
            if ended and "paused" not in error.message:
                return 0
            if error.status == 400:
                return 127  # engines from 23 on refuse to start a program that does not exist
            raise
        except TimeoutError:
            return 1

    async def _from_this_host(self) -> bool:
        """Signal by the host's pids, if the engine is on this host and we may. Returns whether some were found."""
        if self._engine.endpoint.socket is None:
            return False
        top = await self._engine.call("GET", container_path(self._container, "top"), params={"ps_args": "-eo pid"})
        pids = [int(row[0]) for row in top["Processes"]]
        return await asyncio.to_thread(_kill_marked, pids, self._mark.encode())


def _kill_marked(pids: list[int], mark: bytes) -> bool:
    hit = False
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # The mark proves that the pid is the sandbox's process and not another one of this host.
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                hit = True
        except OSError:
            continue
        finally:
            os.close(handle)
    return hit
