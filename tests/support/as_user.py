"""Run tests as an ordinary user: the package in a venv of /usr/bin/python3, in a folder that everyone may read.

The venv is made once for a state of the lock file and kept under /var/tmp; the package and the tests are copied anew
for every run, so that what is tested is what is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
UID = 12345
_TOOLS = ("pytest>=8.4,<9", "pytest-asyncio>=1.0", "pytest-timeout>=2.3")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


def _environment() -> Path:
    """The venv with the package's dependencies; made by one process at a time."""
    project = (REPO / "pyproject.toml").read_bytes()
    key = hashlib.sha256(project + Path("/usr/bin/python3").resolve().name.encode()).hexdigest()[:12]
    folder = Path(f"/var/tmp/sandbox-console-tests-{key}")
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(folder / "venv")
            (folder / "ready").touch()
    return folder / "venv"


def _install(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True)
    subprocess.run(
        [venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", REPO, *_TOOLS],
        check=True, env=os.environ | {"PIP_NO_INPUT": "1"}, cwd="/",
    )  # fmt: skip
    # The copy of each run is what is tested, never the one that came with the dependencies; its metadata stays.
    for package in venv.glob("lib/python3*/site-packages/sandbox_console"):
        shutil.rmtree(package)


def run(*paths: str, timeout_s: float = 300, **env: str) -> subprocess.CompletedProcess[str]:
    """pytest on those paths of the repository, as uid 12345 with no group of root's; ``env`` is added to the environment."""
    python = _environment() / "bin/python"
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-user-"))
    old = os.umask(0o022)
    try:
        folder.chmod(0o755)
        for name in ("src", "tests"):
            shutil.copytree(REPO / name, folder / name, ignore=_IGNORED)
        shutil.copy(REPO / "pyproject.toml", folder)
        for name in ("home", "tmp"):
            (folder / name).mkdir()
            os.chown(folder / name, UID, UID)
        return subprocess.run(
            ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", python, "-B", "-m", "pytest",
             "-q", "--tb=native", "-p", "no:cacheprovider", "--basetemp", folder / "tmp/pytest", *paths],
            cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "LANG": "C.UTF-8",
                 "PYTHONPATH": str(folder / "src"), "REQUIRE": "bubblewrap", "TMPDIR": str(folder / "tmp")} | env,
        )  # fmt: skip
    finally:
        os.umask(old)
        shutil.rmtree(folder, ignore_errors=True)
