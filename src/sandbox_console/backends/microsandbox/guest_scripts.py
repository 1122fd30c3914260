"""Runs small programs of the console in a microVM with its image's ``sh``."""

from __future__ import annotations

import asyncio
from typing import Any

from sandbox_console.backends.microsandbox.sdk import result
from sandbox_console.errors import BackendError, Unsupported

PATIENCE_S = 20.0

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


async def processes(sandbox: Any) -> bytes:
    """Read /proc of each process, for :func:`processes.parse`. The first line is the script's own pid."""
    return (await ask(sandbox, _PROCESSES))[1]
