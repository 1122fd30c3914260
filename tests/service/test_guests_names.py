"""Names that a guest chooses may be a secret's value: of hosts that it asks for, of files that it makes."""

from __future__ import annotations

import asyncio
import io
import tarfile
import time

import pytest
from tests.service.conftest import REF
from tests.service.test_denials import until

from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.egress import EgressRecord, EgressRule
from sandbox_console.model.event import Denied
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.files.file_text import file_row
from sandbox_console.tui.files.file_transfer import download

VALUE = "tok-AbCdEf-0123456789"
HOST = f"{VALUE.lower()}.evil.example"  # as a gateway tells it
CONFIG = Config(backend="fake", secrets={"T": SecretSource(source="env:SC_T")})


@pytest.fixture
def fake(home, monkeypatch):
    monkeypatch.setenv("SC_T", VALUE)
    spec = SandboxSpec("box", image="x", egress=("acme.org",), secrets=("T",))
    record = EgressRecord(1.0, "x", HOST, 443, allowed=False)
    within = Within(egress={REF.id: [record]}, files={REF.id: {f"/tmp/{VALUE}": b"x"}})
    return FakeBackend([Sandbox(REF, "box", Status.RUNNING, "x", spec=spec)], within=within)


async def test_hosts_in_the_feed_the_inbox_and_the_events(fake):
    async with open_console(CONFIG, backends=[fake]) as console:
        viewer = console.watch()
        await until(lambda: any(isinstance(one, Denied) for one in viewer._states.values()))
        [event] = [one for one in viewer._states.values() if isinstance(one, Denied)]
        [seen] = console.denials.everything.hosts()
        [own] = console.denials.of(REF).hosts()
        follower = asyncio.ensure_future(anext(console.egress.feed(follow=True)))
        while not follower.done():  # it tells what comes from now on
            await fake.record(REF, EgressRecord(time.time(), "x", HOST, 443, allowed=False))
            await asyncio.wait([follower], timeout=0.05)
        viewer.close()
    assert {event.host, seen.host, own.host, follower.result()[1].host} == {"[secret].evil.example"}


async def test_hosts_on_record_and_in_what_a_draft_would_do(fake):
    async with open_console(CONFIG, backends=[fake]) as console:
        found = [one.host async for one in console.egress.records(REF)]
        found += [one.host async for _, one in console.egress.feed()]
        assert found == ["[secret].evil.example"] * 2
        assert VALUE.lower() not in repr(await console.egress.replay(REF, [EgressRule("evil.example")])).lower()


async def test_a_host_that_is_allowed_by_mistake_is_masked_in_its_row(fake):
    async with open_console(CONFIG, backends=[fake]) as console:
        _ = [one async for one in console.egress.records(REF)]
        await console.perform(ChangeEgress(REF, add=(EgressRule(HOST),))).result()
        assert VALUE.lower() not in repr(await console.history(AuditQuery())).lower()


async def test_names_of_files(fake, tmp_path):
    async with open_console(CONFIG, backends=[fake]) as console:
        mask = await console.inside.mask(REF)
        [change] = [one for one in await console.inside.changes(REF) if one.path.startswith("/tmp/")]
        assert change.path == "/tmp/[secret]"
        row = file_row(FileInfo(VALUE, FileKind.LINK, target=f"/x/{VALUE}"), mask)
        assert VALUE not in repr(row.cells)
        assert row.key == VALUE  # it is opened by its own name


async def test_names_of_what_a_copy_leaves_out(fake, tmp_path, monkeypatch):
    from sandbox_console.service.gate.gate import Consent

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("top", tarfile.DIRTYPE), (f"top/{VALUE}", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            tar.addfile(info)

    async def archive(ref, path):
        yield out.getvalue()

    monkeypatch.setattr(fake, "download", lambda permit, ref, path: archive(ref, path))
    async with open_console(CONFIG, backends=[fake]) as console:
        left = await download(console, REF, "/tmp/top", tmp_path / "here", Consent(), lambda _: None)
    assert len(left) == 1
    assert VALUE not in left[0]
    assert "[secret]" in left[0]
