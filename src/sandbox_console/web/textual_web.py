"""Installs textual-web in its own environment, as it needs a much older Textual than the console."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import platformdirs

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.text import clean
from sandbox_console.web.process_group import process_group

VERSION = "0.8.0"
LOCK = Path(__file__).with_name("textual-web.lock")
"""Every package of that environment with its hashes, written by ``uv pip compile``."""

NEWEST = (3, 12)
"""The newest Python that works: uvloop below 0.20, which textual-web needs, has no wheel for Python 3.13."""
OLDEST = (3, 11)
_INSTALL_S = 600.0
_PROBE_S = 10.0
_PROBE = f"import ensurepip, sys, venv; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
_DONE = "installed"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's cache folder, or the one under SANDBOX_CONSOLE_HOME. It is not created."""
    home = environment.get("SANDBOX_CONSOLE_HOME")
    return Path(home).expanduser().absolute() / "cache" if home else platformdirs.user_cache_path("sandbox-console")


def folder_of(cache: Path) -> Path:
    """The folder in the cache for the environment of this lock file."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return cache / f"textual-web-{VERSION}-{digest}"


async def install(cache: Path, say: Callable[[str], None], candidates: Sequence[str] | None = None) -> Path:
    """The Python with textual-web, which one process at a time installs into ``cache`` if it is not complete there.

    ``candidates`` are the Pythons to make it with, by default those of this machine. Raises Unsupported if none of
    them fits, ConsoleError if pip fails or the folder cannot be written.
    """
    folder = folder_of(cache)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with _locked(folder / ".lock"):
            if not (folder / _DONE).exists():
                await _make(folder / "venv", say, candidates)
                (folder / _DONE).touch()
    except OSError as error:
        raise ConsoleError(f"{folder} cannot be written: {error.strerror}", hint="set SANDBOX_CONSOLE_HOME") from error
    return folder / "venv" / "bin" / "python"


async def _make(venv: Path, say: Callable[[str], None], candidates: Sequence[str] | None) -> None:
    base = await _fitting(_on_this_machine() if candidates is None else candidates)
    say(f"installing textual-web {VERSION} for {base} into {venv}, once")
    if venv.exists():
        shutil.rmtree(venv)
    await _run([base, "-I", "-m", "venv", str(venv)], f"{base} cannot make a virtual environment")
    words = ["install", "-q", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "--require-hashes"]
    pip = [str(venv / "bin" / "python"), "-I", "-m", "pip"]
    await _run([*pip, *words, "-r", str(LOCK)], f"pip cannot install textual-web {VERSION}")


def _on_this_machine() -> Iterator[str]:
    yield sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        for folder in os.get_exec_path():
            if (python := Path(folder) / f"python3.{minor}").is_file():
                yield str(python)
    yield from filter(None, [shutil.which("python3"), "/usr/bin/python3"])


async def _fitting(candidates: Iterator[str] | Sequence[str]) -> str:
    for python in candidates:
        with contextlib.suppress(OSError, TimeoutError):
            # A pyenv shim exists even for versions that do not; only running it shows that.
            async with asyncio.timeout(_PROBE_S), process_group([python, "-I", "-c", _PROBE], stderr=DEVNULL) as probe:
                if await probe.wait() == 0:
                    return python
    raise Unsupported(
        f"textual-web {VERSION} needs Python 3.{OLDEST[1]} or 3.{NEWEST[1]} with venv, and none was found",
        hint=f"install python3.{NEWEST[1]} with its venv module and have it on PATH; sandbox-console serve needs none",
    )


async def _run(argv: Sequence[str], failure: str) -> None:
    try:
        async with asyncio.timeout(_INSTALL_S), process_group(argv, stdout=PIPE, stderr=STDOUT) as process:
            output = await _output(process)
            code = await process.wait()
    except TimeoutError:
        raise ConsoleError(f"{failure}: it took longer than {_INSTALL_S:.0f} s", hint="try again") from None
    if code:
        lines = [clean(line) for line in output.splitlines() if line.strip()]
        reason = next(
            (line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else f"exit {code}"
        )
        raise ConsoleError(f"{failure}: {reason}", hint="it is recreated at the next try; pip's own settings are used")


async def _output(process: Process) -> str:
    data = await process.stdout.read() if process.stdout else b""
    return data.decode("utf-8", "replace")


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.2)
        yield
