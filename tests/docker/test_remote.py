"""An engine over TCP, plain and with TLS on both sides: a relay in front of the private engine's socket."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest
from tests.docker.conftest import collect
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import HealthState
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("docker")


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


@asynccontextmanager
async def relay(socket, tls=None, port=0):
    tasks = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(socket))
        try:
            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)
        finally:
            inner_writer.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())
    return folder


async def whole_life(permit, name):
    backend = DockerBackend("default")
    await backend.open()
    secret = [ResolvedSecret("TOKEN", "value-of-thirteen")]
    spec = SandboxSpec(name=name, image=IMAGE, command=("sh", "-c", 'echo "${#TOKEN}"; sleep 100'), secrets=("TOKEN",))
    ref = await backend.create(await permit("create"), spec, secret, lambda _: None)
    try:
        async with asyncio.timeout(60):
            await backend.start(await permit("start"), ref, secret)
            assert [item.data for item in await anext(backend.logs(ref, LogQuery(follow=True)))] == [b"17\n"]
        process = await backend.exec(await permit("exec"), Exec(ref, ("head", "-n1")), ())
        await process.write(b"typed\n")
        out, _, end = await collect(process)
        assert (out, end.code) == (b"typed\n", 0)
        terminal = await backend.shell(await permit("shell"), OpenShell(ref, cols=90, rows=20), ())
        await terminal.write(b"stty size\n")
        seen = b""
        async with asyncio.timeout(60):
            while b"20 90" not in seen:
                seen += await terminal.read()
        await terminal.close()
    finally:
        await backend.remove(await permit("remove"), ref, force=True)
        await backend.close()


async def test_over_tcp(docker_engine, permit, unique, monkeypatch):
    async with relay(docker_engine.socket) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        await whole_life(permit, unique())


def both_sides(certificates):
    """A server's TLS that asks for the client's certificate too."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    made.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


async def test_over_tls_with_both_sides_proven(docker_engine, permit, unique, monkeypatch, certificates):
    async with relay(docker_engine.socket, both_sides(certificates)) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
        await whole_life(permit, unique())


async def test_a_server_that_another_authority_signed_is_refused(docker_engine, monkeypatch, certificates, tmp_path):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    for name in ("cert", "key"):
        (tmp_path / f"{name}.pem").write_bytes((certificates / f"{name}.pem").read_bytes())
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other",
         "-keyout", str(tmp_path / "other.key"), "-out", str(tmp_path / "ca.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    async with relay(docker_engine.socket, server) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        backend = DockerBackend("default")
        health = await backend.health()
        assert health.state is HealthState.UNREACHABLE
        assert "certificate" in health.reason.lower()
        await backend.close()
