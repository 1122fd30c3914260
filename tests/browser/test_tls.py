"""``--cert`` and ``--key``: a real handshake, and what the certificate changes."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import Served, client, raw, read_until, served


@pytest.fixture
def server(pem: tuple[Path, Path]) -> Iterator[Served]:
    with served(raw("echo"), cert=str(pem[0]), key=str(pem[1])) as found:
        yield found


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))


async def test_a_browser_that_trusts_it_logs_in_and_types(server: Served, pem: tuple[Path, Path]) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    async with client(server, trusting(pem[0])) as it:
        assert await it.log_in(server.link.split("#token=")[1]) == 200
        (cookie,) = it.session.cookie_jar
        assert cookie["secure"]
        async with it.socket(await it.ticket()) as link:
            await link.send_str('["stdin", "hello"]')
            await read_until(link, b"got hello")
            server.process.send_signal(signal.SIGTERM)
            # Not link.close_code: over TLS aiohttp's client cannot answer any more, and calls that 1006.
            async with asyncio.timeout(10):
                while (message := await link.receive()).type is not aiohttp.WSMsgType.CLOSE:
                    pass
            assert message.data == 4002


async def test_the_http_origin_is_another_one(server: Served, pem: tuple[Path, Path]) -> None:
    async with client(server, trusting(pem[0])) as it:
        token = server.link.split("#token=")[1]
        assert await it.log_in(token, Origin=server.url.replace("https", "http")) == 403


async def test_one_who_does_not_trust_it_and_plain_http_get_nothing(server: Served) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(server.url)
        with pytest.raises(aiohttp.ClientError):
            await session.get(server.url.replace("https", "http"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_handshake_speaks_current_versions(server: Served, pem: tuple[Path, Path], version: ssl.TLSVersion) -> None:
    context = trusting(pem[0])
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    with context.wrap_socket(plain, server_hostname="console.localhost") as secured:
        assert secured.version() == version.name.replace("_", ".")


def test_a_key_of_another_certificate_is_told(pem: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(other)], check=True, capture_output=True)
    with served(raw("echo"), cert=str(pem[0]), key=str(other)) as server:
        assert "cannot be used" in server.link
        assert server.process.wait(10) == 1
