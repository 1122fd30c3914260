"""``cp`` in and out of a bubblewrap sandbox, this tree beside another one, in interleaved pairs.

    python benchmarks/cp.py [OTHER/.venv/bin/python] [--pairs N]

Times are of whole commands: 100 MiB in one file, and 2,000 files of 2 KiB, with a workspace in play.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"


def command(python: str, home: Path, *words: str) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(home)}
    subprocess.run([python, "-m", "sandbox_console", *words], env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("other", nargs="?")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-copy-"))
    folder.chmod(0o711)
    home, work = folder / "home", folder / "ws"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    work.mkdir()
    work.chmod(0o777)
    (folder / "big").write_bytes(os.urandom(1 << 20) * 100)
    (folder / "many").mkdir()
    for at in range(2000):
        (folder / f"many/{at}").write_bytes(os.urandom(2048))
    command(sys.executable, home, "create", "box", "--image", "host", "--workspace", str(work), "--", "sleep", "10000")
    try:
        measure(args, home, folder)
    finally:
        command(sys.executable, home, "rm", "--force", "box")
        shutil.rmtree(folder)


def measure(args: argparse.Namespace, home: Path, folder: Path) -> None:
    """Each copy by each tree in turn."""
    pythons = [sys.executable, *([args.other] if args.other else [])]
    verbs = {
        "100 MiB in": (str(folder / "big"), "box:/workspace/big"),
        "100 MiB out": ("box:/workspace/big", str(folder / "out")),
        "100 MiB out to the workspace": ("box:/workspace/big", str(folder / "ws/again")),
        "2,000 files in": (str(folder / "many"), "box:/workspace"),
        "2,000 files out": ("box:/workspace/many", str(folder / "out")),
        "2,000 files out, over others": ("box:/workspace/many", str(folder)),
    }
    print(f"{'':32}" + "".join(f"{'here' if one == sys.executable else 'other':>10}" for one in pythons) + "  ratio")
    for name, words in verbs.items():
        took: dict[str, list[float]] = {one: [] for one in pythons}
        for _ in range(args.pairs):
            for python in pythons:
                gone = folder / "out"
                shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
                took[python].append(command(python, home, "cp", *words))
        middle = [statistics.median(took[one]) for one in pythons]
        print(f"{name:32}" + "".join(f"{one * 1000:8.0f}ms" for one in middle) + f"  {middle[0] / middle[-1]:.2f}")


if __name__ == "__main__":
    main()
