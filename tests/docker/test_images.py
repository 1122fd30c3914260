"""Images of a real engine, and a real registry beside it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import tarfile

import pytest
from tests.support.engine import IMAGE, SHELLLESS
from tests.support.registry import ADDRESS, PASSWORD, USER, locked_registry, registry
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.gateways import Options
from sandbox_console.backends.docker.image_platforms import listed
from sandbox_console.backends.docker.images import layer_sizes
from sandbox_console.backends.docker.reference import Reference
from sandbox_console.errors import BackendError, Conflict, NotFound, UsageError
from sandbox_console.model.capability import Capability

pytestmark = requires("docker")

__all__ = ["locked_registry", "registry"]


@pytest.fixture(autouse=True)
def no_login(tmp_path, monkeypatch):
    folder = tmp_path / "docker-config"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder


@pytest.fixture
def built(engine, tmp_path):
    """``built("name:tag", b"content")``: an image of two layers, the lower one shared; removed at the end."""
    made = []

    def build(name, content):
        helper = engine.docker("create", "--network", "none", IMAGE, "true")
        (tmp_path / "added").write_bytes(content)
        engine.docker("cp", str(tmp_path / "added"), f"{helper}:/added")
        made.append(name)
        engine.docker("commit", helper, name)
        engine.docker("rm", helper)
        return name

    yield build
    for name in made:
        if engine.docker("images", "-q", name):
            engine.docker("rmi", "-f", name)


async def chunks(data, size=65536):
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def named(backend, name):
    return next((image for image in await backend.images() if name in image.names), None)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("alpine", ("alpine", "", "", "docker.io", "latest")),
        ("alpine:3", ("alpine", "3", "", "docker.io", "3")),
        ("127.0.0.1:5000/a/b", ("127.0.0.1:5000/a/b", "", "", "127.0.0.1:5000", "latest")),
        ("registry.example.com/a:1", ("registry.example.com/a", "1", "", "registry.example.com", "1")),
        (f"a@sha256:{'0' * 64}", ("a", "", f"sha256:{'0' * 64}", "docker.io", f"sha256:{'0' * 64}")),
    ],
)
def test_a_reference_has_its_parts(text, parts):
    found = Reference.parse(text)
    assert (found.name, found.tag, found.digest, found.registry, found.wanted) == parts


@pytest.mark.parametrize(
    "text", ["", "Upper", "a b", "a:", "a:b c", "-a", "../x", "a@sha256:1", "a?b", "a\n", "http://a/b"]
)
def test_what_is_no_reference_is_said(text):
    with pytest.raises(UsageError, match="not an image's name"):
        Reference.parse(text)


def test_layers_have_the_sizes_that_the_history_tells():
    history = [{"Size": 0}, {"Size": 7}, {"Size": 0}, {"Size": 5}]
    assert layer_sizes(["a", "b"], history) == {("a",): 5, ("a", "b"): 7}
    assert layer_sizes(["a", "empty", "b"], history) == {("a",): 0, ("a", "empty"): 5, ("a", "empty", "b"): 7}


async def test_images_are_listed_with_what_uses_them(backend, make, unique):
    before = (await named(backend, IMAGE)).used_by
    await make(start=False)
    found = await named(backend, IMAGE)
    assert (found.backend, found.host, found.used_by) == ("docker", "default", before + 1)
    assert found.size_bytes > 1_000_000
    assert found.created_at
    assert found.id.startswith("sha256:")


def image_of(name, processor):
    """An archive of an image with one empty file, for another processor."""
    layer = packed({"file": b""})
    config = {"architecture": processor, "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}}  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    told = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return packed({**told, "layer.tar": layer})


def packed(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def test_images_say_for_which_platform_they_are(backend, engine, permit, unique):
    own = engine.docker("version", "--format", "{{.Server.Os}}/{{.Server.Arch}}")
    found = await named(backend, IMAGE)
    assert (found.platforms, found.emulated) == ((own,), False)
    other = f"{unique()}:1"
    await backend.load_image(await permit("load-image"), chunks(image_of(other, "s390x")))
    try:
        found = await named(backend, other)
        assert (found.platforms, found.emulated) == (("linux/s390x",), True)
    finally:
        engine.docker("rmi", "-f", other)


def test_the_platforms_of_a_newer_list_are_those_whose_layers_are_here():
    def manifest(processor, *, here=True, kind="image"):
        return {"Kind": kind, "Available": here, "ImageData": {"Platform": {"os": "linux", "architecture": processor}}}

    row = {"Manifests": [manifest("amd64"), manifest("arm64"), manifest("s390x", here=False),
                         manifest("unknown", kind="attestation")]}  # fmt: skip
    assert listed(row) == ("linux/amd64", "linux/arm64")
    assert listed({}) == ()


async def test_an_image_is_saved_removed_and_loaded(backend, permit, built, unique):
    name = built(f"{unique()}:1", b"saved")
    data = b"".join([chunk async for chunk in backend.save_image(await permit("save-image"), name)])
    await backend.remove_image(await permit("remove-image"), name, force=False)
    assert await named(backend, name) is None
    assert await backend.load_image(await permit("load-image"), chunks(data)) == name
    assert await named(backend, name)


async def test_what_cannot_be_done_to_an_image_is_said(backend, permit, make):
    await make(start=False)
    with pytest.raises(Conflict, match="in use"):
        await backend.remove_image(await permit("remove-image"), IMAGE, force=False)
    for name in ("nobody/nothing:1", "nothing"):
        with pytest.raises(NotFound, match=name):
            await backend.remove_image(await permit("remove-image"), name, force=False)
        with pytest.raises(NotFound, match=name):
            [chunk async for chunk in backend.save_image(await permit("save-image"), name)]
    with pytest.raises(UsageError, match="not an image's name"):
        await backend.remove_image(await permit("remove-image"), "../containers/x", force=True)
    for data in (b"", b"not a tar at all" * 100):
        with pytest.raises(BackendError, match="archive"):
            await backend.load_image(await permit("load-image"), chunks(data))


async def test_a_source_that_fails_fails_the_load_by_its_own_name(backend, permit):
    async def broken():
        yield b"\0" * 100
        raise NotFound("the file went away")

    with pytest.raises(NotFound, match="the file went away"):
        await backend.load_image(await permit("load-image"), broken())


async def test_a_prune_removes_what_its_dry_run_told(backend, permit, built, unique):
    kept = built(f"{unique()}:kept", b"k" * 1000)
    name = f"{unique()}:gone"
    built(name, b"x" * 300_000)
    built(name, b"y" * 200_000)  # takes the name of the one before, which has none now
    told = await backend.prunable_images(False)
    gone = [image.id for image in told.images]
    assert len(gone) == 1
    assert told.freed_bytes == 300_000
    assert {image.id for image in (await backend.prunable_images(True)).images} >= {
        *gone,
        (await named(backend, kept)).id,
    }
    done = await backend.prune_images(await permit("prune-images"), False)
    assert [image.id for image in done.images] == gone
    assert done.freed_bytes == told.freed_bytes
    assert await named(backend, kept)
    assert (await backend.prunable_images(False)).images == ()


async def test_a_prune_of_all_spares_what_gateways_are_made_from(
    backend, engine, permit, built, make, unique, tmp_path
):
    for image in (IMAGE, SHELLLESS):
        await make(image=image, start=False)  # other tests need them
    await backend.prune_images(await permit("prune-images"), True)  # what earlier tests left on this engine
    other, gateway = built(f"{unique()}:other", b"o" * 70_000), built(f"{unique()}:gateway", b"g")
    twin = f"{other}-twin"
    engine.docker("tag", other, twin)
    backend = DockerBackend("default", tmp_path, Options(egress_image=gateway))
    try:
        await backend.open()
        told = await backend.prunable_images(True)
        assert [image.names for image in told.spared] == [(gateway,)]
        assert [sorted(image.names) for image in told.images] == [[other, twin]]
        done = await backend.prune_images(await permit("prune-images"), True)
        assert done == told
        assert told.freed_bytes == 70_000
        assert await named(backend, other) is None
        assert "egress" in (await named(backend, gateway)).needed
        assert (await backend.health()).ok
        assert backend.capabilities().has(Capability.EGRESS_ALLOWLIST)
    finally:
        await backend.close()


async def test_an_image_is_pulled_and_its_layers_are_told(backend, permit, built, unique, registry):
    local = built(f"{unique()}:1", os.urandom(3_000_000))
    reference = registry.push(local, f"team/{unique()}:1")
    registry.engine.docker("rmi", local)
    told = []
    try:
        made = await backend.pull_image(await permit("pull"), reference, told.append)
        found = await named(backend, reference)
        assert made == found.id
        assert found.digest.startswith("sha256:")
        layers = {line.partition(":")[0] for line in told if ": Pull complete" in line}
        assert layers
        assert any("Downloading" in line and "MiB" in line for line in told)
        assert any("Downloaded newer image" in line for line in told)
    finally:
        registry.engine.docker("rmi", "-f", reference)


async def test_what_a_registry_has_not_is_said(backend, permit, registry):
    registry.push(IMAGE, "there:1")
    for name in (f"{ADDRESS}/nowhere:1", f"{ADDRESS}/there:2"):
        with pytest.raises(NotFound, match="has no"):
            await backend.pull_image(await permit("pull"), name, lambda _: None)
    with pytest.raises(UsageError):
        await backend.pull_image(await permit("pull"), "Not A Name", lambda _: None)
    with pytest.raises(BackendError, match="refused"):
        await backend.pull_image(await permit("pull"), "127.0.0.1:1/x:1", lambda _: None)


async def test_a_pull_that_is_cancelled_ends_the_transfer(backend, permit, built, unique, registry):
    local = built(f"{unique()}:1", os.urandom(60_000_000))
    reference = registry.push(local, f"{unique()}:big")
    registry.engine.docker("rmi", local)
    begun = asyncio.Event()
    task = asyncio.ensure_future(
        backend.pull_image(await permit("pull"), reference, lambda line: begun.set() if "ulling fs" in line else None)
    )
    async with asyncio.timeout(30):
        await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await asyncio.sleep(3)  # longer than what is left of it would take
    assert await named(backend, reference) is None


@pytest.mark.parametrize("how", ["nothing", "login", "wrong", "helper"])
async def test_credentials_are_those_of_docker_login(
    backend, permit, locked_registry, unique, no_login, monkeypatch, how
):
    engine, name = locked_registry.engine, f"{unique()}:1"
    engine.docker("login", "-u", USER, "--password-stdin", ADDRESS, stdin=PASSWORD.encode())
    reference = locked_registry.push(SHELLLESS, name)
    config = no_login / "config.json"
    kept = json.loads(config.read_text())
    assert base64.b64decode(kept["auths"][ADDRESS]["auth"]).decode() == f"{USER}:{PASSWORD}"
    if how == "nothing":
        config.unlink()
    elif how == "wrong":
        kept["auths"][ADDRESS]["auth"] = base64.b64encode(f"{USER}:not-it".encode()).decode()
        config.write_text(json.dumps(kept))
    elif how == "helper":
        helper = no_login / "docker-credential-tests"
        answer = json.dumps({"ServerURL": ADDRESS, "Username": USER, "Secret": PASSWORD})
        helper.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
        helper.chmod(0o755)
        config.write_text(json.dumps({"credHelpers": {ADDRESS: "tests"}}))
        monkeypatch.setenv("PATH", f"{no_login}:{os.environ['PATH']}")
    if how in ("login", "helper"):
        try:
            assert await backend.pull_image(await permit("pull"), reference, lambda _: None)
        finally:
            engine.docker("rmi", "-f", reference)
        return
    with pytest.raises(BackendError, match=r"127\.0\.0\.1:5000 refuses") as caught:
        await backend.pull_image(await permit("pull"), reference, lambda _: None)
    assert caught.value.hint == f"docker login {ADDRESS}"
    assert ("are not accepted" in caught.value.message) == (how == "wrong")
    assert PASSWORD not in caught.value.message
