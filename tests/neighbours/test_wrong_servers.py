"""Servers that lie, hang or flood: each is named, bounded in time and memory, and gets the key alone."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.neighbours.wrong_server import MODES, wrong_server

from sandbox_console.backends.a2a import A2aProvider
from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common import remote
from sandbox_console.backends.daytona import DaytonaProvider
from sandbox_console.backends.e2b import E2bProvider
from sandbox_console.backends.microsandbox_legacy import LegacyProvider
from sandbox_console.backends.opensandbox import OpenSandboxProvider
from sandbox_console.errors import BackendError, BackendUnreachable, ConfigError
from sandbox_console.model.event import HealthChanged
from sandbox_console.testing.conformance.rig import resident_mib

KEY = "canary-key-of-a-neighbour"
PROVIDERS = [A2aProvider, DaytonaProvider, E2bProvider, LegacyProvider, OpenSandboxProvider]
HOSTED = (DaytonaProvider, E2bProvider)
"""They have an address by default."""


async def read(_: str) -> str:
    return KEY


def backend_of(provider, url: str, folder, **more):
    options = {"servers": {"lab": {"url": url, "key": "KEY", **more}}}
    [backend] = provider.backends(BackendSettings(folder, options, key=read))
    return backend


@pytest.fixture(params=PROVIDERS, ids=lambda one: one.name)
def provider(request):
    return request.param


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(remote.Remote.answer.__wrapped__, "__kwdefaults__",
                        remote.Remote.answer.__wrapped__.__kwdefaults__ | {"timeout_s": 1.5})  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
async def test_a_wrong_answer_is_an_error_that_names_the_server(provider, tmp_path, mode):
    async with wrong_server(mode) as wrong:
        backend = backend_of(provider, wrong.url, tmp_path)
        await backend.open()
        before, began = resident_mib(), time.monotonic()
        try:
            async with asyncio.timeout(20):
                with pytest.raises((BackendUnreachable, BackendError)) as caught:
                    await backend.list()
            health = await backend.health()
        finally:
            await backend.close()
        assert "lab" in caught.value.message
        assert KEY not in caught.value.message + caught.value.hint
        assert (health.backend, health.host, health.ok) == (provider.name, "lab", False)
        assert health.reason
        assert time.monotonic() - began < 20
        assert resident_mib() - before < 64, "the answer was kept"


async def test_a_flood_is_left_after_a_few_mib(provider, tmp_path):
    async with wrong_server("100 MB") as wrong:
        backend = backend_of(provider, wrong.url, tmp_path)
        with pytest.raises(BackendUnreachable, match=r"larger than [28] MiB"):
            await backend.list()
        await backend.close()
        assert wrong.sent < 40 << 20


async def test_a_redirect_to_another_host_gets_no_key(provider, tmp_path):
    async with wrong_server("bad json") as other, wrong_server("redirect", other.url + "/stolen") as wrong:
        backend = backend_of(provider, wrong.url, tmp_path)
        with pytest.raises(BackendUnreachable, match="redirects to"):
            await backend.list()
        await backend.close()
        assert wrong.keys
        assert not other.keys


async def test_a_watch_of_a_frozen_one_tells_that_it_is_silent(provider, tmp_path):
    async with wrong_server("frozen") as wrong:
        backend = backend_of(provider, wrong.url, tmp_path)
        async with asyncio.timeout(20):
            event = await anext(aiter(backend.watch()))
        await backend.close()
        assert isinstance(event, HealthChanged)
        assert (event.health.ok, event.health.silent) == (False, True)


async def test_nothing_listens_there(provider, tmp_path):
    backend = backend_of(provider, "http://127.0.0.1:9", tmp_path)
    health = await backend.health()
    await backend.close()
    assert (health.ok, health.silent) == (False, False)
    assert "Connect" in health.reason or "refused" in health.reason


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"url": "ftp://x"}, "not an http"),
        ({"url": "http://user:word@host"}, "has a login"),
        ({"url": "http://host.example", "key": "KEY"}, "without TLS"),
        ({"url": "https://host", "kee": "KEY"}, "no option 'kee'"),
        ({"key": "KEY"}, "url"),
        ("https://host", "Expected"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(provider, tmp_path, table, says):
    if provider in HOSTED and table == {"key": "KEY"}:
        assert provider.backends(BackendSettings(tmp_path, {"servers": {"lab": table}}))
        return
    with pytest.raises(ConfigError, match=says):
        provider.backends(BackendSettings(tmp_path, {"servers": {"lab": table}}))


def test_it_is_off_until_it_is_configured(provider, tmp_path):
    assert provider.backends(BackendSettings(tmp_path, {})) == []
