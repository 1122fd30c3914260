"""Runs small programs of the console in a microVM with its image's ``sh``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from sandbox_console.backends.microsandbox.sdk import result
from sandbox_console.errors import BackendError, Unsupported
from sandbox_console.model.guest import GuestProcess

PATIENCE_S = 20.0
_TICKS = 100  # USER_HZ of every Linux that can run in a microVM

_SWEEP = """
for f in /proc/[0-9]*/stat; do
  read -r line 2>/dev/null <$f || continue
  set -- ${line##*) }
  [ "$4" = "$SESSION" ] && { f=${f%/stat}; kill -9 ${f##*/}; }
done 2>/dev/null
:
"""

_PROCESSES = """
echo $$
cd /proc
for p in [0-9]*; do
  read -r stat 2>/dev/null <$p/stat || continue
  uid= rss=
  while read -r key value rest; do
    case $key in Uid:) uid=$value ;; VmRSS:) rss=$value ;; esac
  done 2>/dev/null <$p/status
  printf '%s\\n%s %s\\n' "$stat" "${uid:--}" "${rss:-0}"
  cat $p/cmdline 2>/dev/null
  printf '\\0\\n\\n'
done
"""


async def ask(sandbox: Any, script: str, *words: str, env: dict[str, str] | None = None) -> tuple[int, bytes, bytes]:
    """Run a script to its end. Raises Unsupported if the image has no ``sh``, BackendError if it takes too long."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            done = await result(sandbox.exec("/bin/sh", ["-c", script, "sh", *words], env=env or {}))
    except TimeoutError:
        raise BackendError(f"the sandbox did not answer within {PATIENCE_S:g} s") from None
    except Exception as error:
        if "No such file" in str(error):
            raise Unsupported("the image has no /bin/sh, which this needs") from error
        raise BackendError(f"microsandbox failed to run a program of the console's: {error}") from error
    return done.exit_code, done.stdout_bytes, done.stderr_bytes


async def sweep(sandbox: Any, session: int) -> None:
    """Kill every process of a session, by the pid that leads it."""
    await ask(sandbox, _SWEEP, env={"SESSION": str(session)})


async def processes(sandbox: Any) -> list[GuestProcess]:
    """Every process of a microVM except the kernel's own threads."""
    return parse_processes((await ask(sandbox, _PROCESSES))[1])


def parse_processes(text: bytes) -> list[GuestProcess]:
    """Parse the output of the script above (proc(5)), without the kernel's own threads and the script itself."""
    own, _, records = text.partition(b"\n")
    return [process for process in _all(records, own.strip()) if process.parent != 2 and process.pid != 2]


def _all(text: bytes, own: bytes) -> Iterator[GuestProcess]:
    """The processes of every session except ``own``."""
    for record in text.split(b"\0\n\n"):
        lines = record.split(b"\n", 2)
        if len(lines) < 3:
            continue
        head, _, tail = lines[0].rpartition(b")")
        pid, _, name = head.partition(b" (")
        fields, (uid, rss) = tail.split(), lines[1].split()
        if len(fields) < 22 or not pid.isdigit() or fields[3] == own:
            continue
        command = lines[2].replace(b"\0", b" ").strip() or b"[" + name + b"]"
        yield GuestProcess(
            pid=int(pid),
            parent=int(fields[1]),
            user="" if uid == b"-" else uid.decode(),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
            memory_bytes=int(rss) * 1024,
            state=fields[0].decode("ascii", "replace"),
            command=command.decode("utf-8", "surrogateescape"),
        )
