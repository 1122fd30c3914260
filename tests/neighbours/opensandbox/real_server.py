"""The real opensandbox-server from PyPI, in an environment of its own, on a private dockerd; execd is a stand-in."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import opensandbox
from tests.support.engine import DockerEngine, busybox_tree, private_engine, until

KEY = "canary-key-of-opensandbox"
IMAGE = "sandbox-console-test:python"
_HERE = Path(__file__).parent
_EXECD, _NETWORK, _PORT = "sandbox-console-test:execd", "sandboxes", 8080
_UP_S = 240
"""Its imports take long on a machine that is busy."""
_CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
[runtime]
type = "docker"
execd_image = "{execd}"
[storage]
allowed_host_paths = []
[store]
type = "sqlite"
path = "{folder}/store.db"
[docker]
network_mode = "{network}"
"""
_KUBERNETES = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
[runtime]
type = "kubernetes"
execd_image = "{execd}"
[storage]
allowed_host_paths = []
[store]
type = "sqlite"
path = "{folder}/store.db"
[kubernetes]
kubeconfig_path = "{folder}/kubeconfig"
namespace = "boxes"
workload_provider = "batchsandbox"
"""
_BOOTSTRAP = b"""#!/bin/sh
/opt/opensandbox/execd >/tmp/execd.log 2>&1 &
exec "$@"
"""
_NOT_NEEDED = ("__pycache__", "/test", "idlelib", "tkinter", "lib2to3", "ensurepip", "config-3.11", "dist-packages")


@contextmanager
def running() -> Iterator[tuple[str, DockerEngine]]:
    """The address of the server, and its engine."""
    with private_engine() as engine, tempfile.TemporaryDirectory() as name:
        engine.docker("network", "create", "--internal", _NETWORK)  # no way out: no_network = true is right
        engine.docker("import", "-", IMAGE, stdin=_python_tree())
        engine.docker("import", "-c", 'CMD ["/bin/sleep", "1000"]', "-", _EXECD, stdin=_execd_tree())
        text = _CONFIG.format(port=_PORT, key=KEY, execd=_EXECD, folder=name, network=_NETWORK)
        (Path(name) / "config.toml").write_text(text)
        with _server(engine, Path(name)), _relay(engine) as url:
            until(lambda: _answers(url), _UP_S, f"it did not come up: {(Path(name) / 'log').read_text()[-2000:]}")
            yield url, engine


@contextmanager
def on_kubernetes(api: str, port: int, folder: Path) -> Iterator[str]:
    """The address of a server that asks the API of a cluster at this address."""
    cluster = {"clusters": [{"name": "c", "cluster": {"server": api}}], "users": [{"name": "u", "user": {}}]}
    context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    (folder / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **cluster, **context}))
    text = _KUBERNETES.format(port=port, key=KEY, execd=_EXECD, folder=folder)
    (folder / "config.toml").write_text(text)
    argv = [opensandbox.folder() / "bin" / "opensandbox-server", "--config", folder / "config.toml"]
    with _process(argv, folder, {}):
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(url), _UP_S, f"it did not come up: {(folder / 'log').read_text()[-2000:]}")
        yield url


@contextmanager
def _server(engine: DockerEngine, state: Path) -> Iterator[None]:
    inside = ["nsenter", f"--net=/proc/{engine.pid}/ns/net"]
    argv = [*inside, opensandbox.folder() / "bin" / "opensandbox-server", "--config", state / "config.toml"]
    with _process(argv, state, {"DOCKER_HOST": engine.url}):
        yield


@contextmanager
def _process(argv: Sequence[str | Path], state: Path, more: Mapping[str, str]) -> Iterator[None]:
    with (state / "log").open("wb") as log:
        process = subprocess.Popen(argv, env={**os.environ, "HOME": str(state), **more}, stdout=log, stderr=log)
    try:
        yield
    finally:
        _end(process)


@contextmanager
def _relay(engine: DockerEngine) -> Iterator[str]:
    argv = [sys.executable, _HERE / "relay.py", str(engine.pid), str(_PORT)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        _end(process)


def _end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def _execd_tree() -> bytes:
    buffer = io.BytesIO(busybox_tree())
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        for name, data in (("execd", (_HERE / "execd_stand_in.py").read_bytes()), ("bootstrap.sh", _BOOTSTRAP)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _python_tree() -> bytes:
    """The busybox tree and this machine's Python, which the stand-in for execd runs on."""
    told = subprocess.run(["ldd", opensandbox.PYTHON], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in told.split() if word.startswith("/")]
    buffer = io.BytesIO(busybox_tree())
    with tarfile.open(fileobj=buffer, mode="a", dereference=True) as tar:
        for path in (str(opensandbox.PYTHON), *libraries):
            tar.add(path, arcname=path.lstrip("/"))
        tar.add("/usr/lib/python3.11", arcname="usr/lib/python3.11", filter=_needed)
    return buffer.getvalue()


def _needed(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(word in info.name for word in _NOT_NEEDED) else info
