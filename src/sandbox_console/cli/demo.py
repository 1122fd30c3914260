"""``demo``: starts real sandboxes on the best backend here and shows them in the TUI, or without a terminal in a tour.

Without SANDBOX_CONSOLE_HOME, a demo has its own home, which is removed with its sandboxes: the user's audit log and
configuration are left alone, and two demos do not see each other. With ``--keep`` it uses the user's home, so that
``sandbox-console ls`` finds the sandboxes afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator

from msgspec import structs

from sandbox_console.cli import child_process, tour
from sandbox_console.cli.context import Context, OutputClosed, Streams
from sandbox_console.cli.run import leave_stdout
from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.action import Create, Remove
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, known_ground

Made = tuple[SandboxRef, str]

LABEL = "demo"
_RUN = "demo-run"
_HOME = "SANDBOX_CONSOLE_HOME"
_CONFIG = "SANDBOX_CONSOLE_CONFIG"
_LIFE_S = 4 * 3600.0
"""The lifetime of the sandboxes, if the backend has lifetimes, so that those of a killed demo end by themselves."""

_CHAT = """
i=0
while :; do
  i=$((i + 1))
  echo "step $i: fetched $((i * 37 % 91)) rows in $((i * 13 % 50)) ms"
  [ $((i % 4)) -ne 0 ] || printf '\\033[32mcheckpoint %d saved\\033[0m\\n' "$i"
  [ $((i % 5)) -ne 0 ] || echo "warning: attempt $i was slow, trying again" >&2
  sleep 0.7
done
"""
_FAIL = "echo 'loading the job'; sleep 4; echo 'error: no job was found' >&2; exit 3"
_ROLES = {"failing": _FAIL, "idle": "echo 'waiting for work'; exec sleep 1000000", "chatty": _CHAT}
"""The newest is first in the list and under the cursor, so its log goes on."""
_IMAGES_TRIED = 8


class _Ended(Exception):
    """A signal requested the end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def demo(args: argparse.Namespace, streams: Streams | None = None) -> int:
    """Make sandboxes, show them, and remove them even on SIGINT, SIGTERM and SIGHUP. Returns the exit code."""
    context = Context(args, streams or Streams.standard())
    made: list[Made] = []
    run = secrets.token_hex(2)
    if args.config:
        os.environ[_CONFIG] = args.config  # the TUI and the tour's commands are processes of their own
    with _home(keep=args.keep), _signals():
        try:
            asyncio.run(_make(context, run, made))
            return _show(context, *made[0])
        except _Ended as ended:
            return 128 + ended.signum
        except OutputClosed:
            leave_stdout()
            return 128 + signal.SIGPIPE
        finally:
            with _deaf():
                _end(context, run, made)


def _show(context: Context, ref: SandboxRef, image: str) -> int:
    if context.streams.out.tty and context.streams.stdin is not None and os.isatty(context.streams.stdin):
        return _tui(context)
    return tour.tour(context.streams.out, ref.backend, image)


def _tui(context: Context) -> int:
    """Run the TUI in its own process, so that the sandboxes are removed whatever happens to it."""
    args = context.args
    with child_process.running(["--read-only"] if args.read_only else []) as process:
        return process.wait()


async def _make(context: Context, run: str, made: list[Made]) -> None:
    async with context.open() as console:
        targets = await _targets(context, console)
        for backend, host in targets:
            images = await _images(console, backend, host)
            before = len(made)
            for role, script in _ROLES.items():
                name = f"demo-{role}-{run}" + ("" if backend == "bubblewrap" else f"-{backend}")
                spec = SandboxSpec(name, "", ("sh", "-c", script), labels={LABEL: "1", _RUN: run})
                await _make_one(console, (backend, host), spec, images, made)
            if before == len(made) and backend == targets[0][0]:
                raise Unsupported(f"{backend} answers, but has no image that the demo can use")
    for ref, _ in made:
        context.say(f"made {ref}")


async def _targets(context: Context, console: Console) -> list[tuple[str, str]]:
    """Bubblewrap if it works, and also Docker if it has an image."""
    found = [key for key in await console.targets() if context.backend[0] in ("", key[0])]
    found = [key for key in found if key[0] in ("bubblewrap", "docker")]
    if not found:
        reasons = "; ".join(f"{health.backend}: {health.reason}" for health in await console.health() if not health.ok)
        raise Unsupported(f"no backend works here: {reasons}", hint="sandbox-console doctor")
    return sorted(found, key=lambda key: key[0] != "bubblewrap")


async def _images(console: Console, backend: str, host: str) -> list[str]:
    """The images to make sandboxes from, the smallest first: one of them will have a shell."""
    if backend == "bubblewrap":
        return ["host"]
    try:
        images = await console.inside.images(backend, host)
    except ConsoleError:
        return []
    small = sorted(images, key=lambda image: image.size_bytes or 0)
    return [image.names[0] for image in small if image.names][:_IMAGES_TRIED]


async def _make_one(
    console: Console, host: tuple[str, str], spec: SandboxSpec, images: list[str], made: list[Made]
) -> None:
    """Make one from the first image that works. The images that failed are left out for the following sandboxes."""
    capabilities = await console.capabilities(*host)
    life = _LIFE_S if capabilities.has(Capability.MAX_DURATION) else None
    while images:
        spec = structs.replace(spec, image=images[0], max_duration_s=life)
        try:
            result = await console.perform(Create(spec, *host)).result()
        except ConsoleError:
            if len(images) == 1 and host[0] == "bubblewrap":
                raise
            images.pop(0)
            continue
        if result.ref is not None:
            made.append((result.ref, spec.image))
        return


def _end(context: Context, run: str, made: list[Made]) -> None:
    if context.args.keep and made:
        context.say("kept; see them: sandbox-console ls -l demo=1")
        return
    ends = asyncio.run(_remove(context, run, {ref for ref, _ in made}))
    for problem in ends:
        if problem is not None:
            context.fail(problem)
    context.say(f"removed {ends.count(None)} sandboxes of the demo")


async def _remove(context: Context, run: str, refs: set[SandboxRef]) -> list[ConsoleError | None]:
    """Remove the sandboxes of this run, including those that a signal kept us from learning about."""

    async def one(console: Console, ref: SandboxRef) -> ConsoleError | None:
        try:
            await console.perform(Remove(ref, force=True)).result()
        except ConsoleError as error:
            return None if error.code == "not_found" else error  # the user may have removed it in the TUI
        return None

    context.args.read_only = False
    async with context.open() as console:
        sandboxes, _ = await console.list()
        refs |= {sandbox.ref for sandbox in sandboxes if sandbox.labels.get(_RUN) == run}
        return await asyncio.gather(*(one(console, ref) for ref in sorted(refs)))


@contextlib.contextmanager
def _home(*, keep: bool) -> Iterator[None]:
    if keep or os.environ.get(_HOME):
        yield
        return
    known_ground()  # so that the folder is not made where a sandbox can write
    folder = tempfile.mkdtemp(prefix="sandbox-console-demo-")
    os.environ[_HOME] = folder
    try:
        yield
    finally:
        del os.environ[_HOME]
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    def ended(signum: int, _: object) -> None:
        raise _Ended(signum)

    before = {signum: signal.signal(signum, ended) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore signals, so that a second Ctrl+C does not leave half of the sandboxes behind."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
