"""Docker's abilities through the gate: each with its row, known secrets masked wherever text comes back."""

from __future__ import annotations

import io
import json
import os
import tarfile

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import Denied, Unsupported
from sandbox_console.model import action, host_action
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.gate.operation import ExecIO

pytestmark = requires("docker")

CANARY = "canary-value-of-a-secret"
HERE = ("docker", "default")


@pytest.fixture
async def console(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKEN_SOURCE", CANARY)
    config = Config(secrets={"TOKEN": SecretSource(source="env:TOKEN_SOURCE")})
    async with open_console(config, backends=[DockerBackend("default")]) as made:
        yield made


@pytest.fixture
async def ref(console, unique):
    spec = SandboxSpec(unique(), IMAGE, ("sleep", "1000"), secrets=("TOKEN",))
    made = (await console.perform(action.Create(spec, *HERE)).result()).ref
    yield made
    await console.perform(action.Remove(made, force=True), consent=Consent(yes=True, confirm=made.id)).result()


async def done(console, what, **io_):
    operation = console.perform(what, consent=Consent(yes=True), io=ExecIO(**io_))
    return await operation.result()


async def chunks(data):
    for at in range(0, len(data), 10_000):
        yield data[at : at + 10_000]


def tar_of(name, data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def test_each_ability_has_its_row(console, ref, unique):
    data, back = os.urandom(50_000), bytearray()

    async def keep(_, chunk):
        back.extend(chunk)

    sent = await done(console, action.Upload(ref, "/tmp"), stdin=chunks(tar_of("file", data)))
    assert sent.details["bytes"] > len(data)
    got = await done(console, action.Download(ref, "/tmp/file"), on_output=keep)
    assert got.details["bytes"] == len(back)
    with tarfile.open(fileobj=io.BytesIO(bytes(back))) as tar:
        assert tar.extractfile("file").read() == data
    image = f"{unique()}:1"
    assert (await done(console, action.Commit(ref, image))).details["image_id"].startswith("sha256:")
    assert any(image in one.names for one in await console.inside.images(*HERE))
    await done(console, host_action.RemoveImage(*HERE, image))
    await done(console, host_action.PruneImages(*HERE))
    name = unique()
    await done(console, action.Rename(ref, name))
    assert (await console.inspect(ref)).name == name
    with pytest.raises(Unsupported, match="cannot be copied"):
        await done(console, action.Fork(ref, "x"))
    rows = {row.attempt.action: str(row.outcome) for row in await console.history(AuditQuery())}
    assert {verb: rows[verb] for verb in ("upload", "download", "commit", "remove-image", "prune-images", "rename", "fork")} == {
        "upload": "ok", "download": "ok", "commit": "ok", "remove-image": "ok", "prune-images": "ok", "rename": "ok",
        "fork": "unsupported",
    }  # fmt: skip


async def test_known_secrets_are_masked_in_what_is_read(console, ref):
    await done(console, action.Exec(ref, ("sh", "-c", f": {CANARY}; sleep 1000 & sleep 0.1")))
    guest_events = [one async for one in console.inside.guest_events(ref)]
    assert any(one.what == "exec_create" and ": " in one.detail for one in guest_events)
    texts = [
        repr(guest_events),
        repr(await console.inside.processes(ref)),
        json.dumps(dict(await console.inside.raw(ref))),
    ]
    assert not [text for text in texts if CANARY in text]


async def test_a_read_only_console_changes_no_image(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    config = Config(policy=Rules(read_only=True))
    async with open_console(config, backends=[DockerBackend("default")]) as console:
        for what in (
            host_action.PruneImages(*HERE, unused=True),
            host_action.RemoveImage(*HERE, IMAGE),
            host_action.PullImage(*HERE, "x:1"),
        ):
            with pytest.raises(Denied):
                await done(console, what)
        assert any(IMAGE in one.names for one in await console.inside.images(*HERE))
