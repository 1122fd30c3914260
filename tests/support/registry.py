"""Debian's docker-registry on the loopback of a private engine's network namespace."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import DockerEngine, until
from tests.support.require import missing

PORT = 5000
ADDRESS = f"127.0.0.1:{PORT}"
USER, PASSWORD = "tester", "pass-of-tests"
# bcrypt of the password above, with the fewest rounds.
_HTPASSWD = f"{USER}:$2b$04$bHbMDqhYS6sNJgkbeMVpCu7VyndLiZe/VwdCTZoVaKO6wLacM.ck6\n"
_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
http: {{addr: "{address}"}}
{auth}
"""


class Registry:
    """One registry. ``login`` makes it ask for USER and PASSWORD."""

    def __init__(self, engine: DockerEngine, folder: Path, *, login: bool = False) -> None:
        self.engine = engine
        self._folder = folder
        self._login = login
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "htpasswd").write_text(_HTPASSWD)
        auth = f"auth: {{htpasswd: {{realm: test, path: {self._folder}/htpasswd}}}}" if self._login else ""
        config = self._folder / "config.yml"
        config.write_text(_CONFIG.format(folder=self._folder, address=ADDRESS, auth=auth))
        self._process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self.engine.pid}/ns/net", "docker-registry", "serve", str(config)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._listens, 30, "docker-registry did not come up")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def push(self, local: str, name: str) -> str:
        """Give a local image to the registry under a name, forget it locally; its reference."""
        reference = f"{ADDRESS}/{name}"
        self.engine.docker("tag", local, reference)
        self.engine.docker("push", "-q", reference)
        self.engine.docker("rmi", reference)
        return reference

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "docker-registry ended"
        table = Path(f"/proc/{self.engine.pid}/net/tcp").read_text()
        return f":{PORT:04X} 00000000:0000 0A" in table


@pytest.fixture
def registry(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Registry]:
    """A registry that asks for no login."""
    yield from _running(Registry(docker_engine, tmp_path / "registry"))


@pytest.fixture
def locked_registry(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Registry]:
    """A registry that asks for a login."""
    yield from _running(Registry(docker_engine, tmp_path / "registry", login=True))


def _running(made: Registry) -> Iterator[Registry]:
    if reason := missing("docker-registry"):
        pytest.skip(f"docker-registry: {reason}")
    try:
        made.start()
        yield made
    finally:
        made.stop()
