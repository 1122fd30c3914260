"""Checks images and snapshots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sandbox_console.backends import abilities
from sandbox_console.errors import NotFound
from sandbox_console.model.capability import Capability
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.testing.conformance.rig import Checks, Rig
from sandbox_console.testing.conformance.tars import chunks, get, put, tar_of

_NAME = "sandbox-console-conformance:made"


class Images(Checks):
    async def test_the_image_of_a_sandbox_is_there_and_in_use(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Images, Capability.IMAGES_CHANGE)
        found = await rig.look(await rig.make(start=False))
        [image] = [one for one in await backend.images() if found.image in one.names or one.id == found.image]
        assert image.used_by is None or image.used_by >= 1
        assert (image.backend, image.host) == (rig.backend.name, rig.backend.host)

    async def test_a_commit_is_an_image_without_secrets(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Committing, Capability.COMMIT)
        images = rig.ability(abilities.Images, Capability.IMAGES_CHANGE)
        files = rig.ability(abilities.Files, Capability.COPY)
        secret = ResolvedSecret("TOKEN", "hunter2-of-the-commit")
        secrets = (secret,) if rig.backend.capabilities().has(Capability.SECRET_ENV) else ()
        ref = await rig.make(secrets=secrets)
        await put(rig, files, ref, "/etc", tar_of(("kept", b"kept")))
        await backend.commit(await rig.permit("commit"), ref, _NAME)
        try:
            other = await rig.make(start=False, image=_NAME)
            assert await get(rig, files, other, "/etc/kept") == {"kept": b"kept"}
            if rig.backend.capabilities().has(Capability.RAW):
                raw = rig.ability(abilities.Raw, Capability.RAW)
                assert "hunter2" not in repr(await raw.raw(other))
            await rig.remove(other)
        finally:
            await images.remove_image(await rig.permit("remove-image"), _NAME, True)

    async def test_an_image_goes_out_and_comes_back(self, rig: Rig) -> None:
        rig.needs(Capability.IMAGE_FILES, Capability.COMMIT)
        backend = rig.ability(abilities.Images, Capability.IMAGES_CHANGE)
        maker = rig.ability(abilities.Committing, Capability.COMMIT)
        await maker.commit(await rig.permit("commit"), await rig.make(), _NAME)
        saved = b"".join([chunk async for chunk in backend.save_image(await rig.permit("save-image"), _NAME)])
        await backend.remove_image(await rig.permit("remove-image"), _NAME, False)
        assert not [one for one in await backend.images() if _NAME in one.names]
        await backend.load_image(await rig.permit("load-image"), chunks(saved))
        assert [one for one in await backend.images() if _NAME in one.names]
        await backend.remove_image(await rig.permit("remove-image"), _NAME, False)

    async def test_an_unknown_image_is_not_found(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Images, Capability.IMAGES_CHANGE)
        with pytest.raises(NotFound):
            await backend.remove_image(await rig.permit("remove-image"), "no-such-image:ever", False)

    async def test_looking_what_a_prune_would_remove_removes_nothing(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Images, Capability.IMAGES_CHANGE)
        used = (await rig.look(await rig.make(start=False))).image
        before = {one.id for one in await backend.images()}
        free = await backend.prunable_images(True)
        assert {one.id for one in await backend.images()} == before
        assert not [one for one in free.images if used in one.names]

    async def test_a_snapshot_brings_back_what_was(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Snapshots, Capability.SNAPSHOT)
        files = rig.ability(abilities.Files, Capability.COPY)
        ref, name = await rig.make(), rig.spec().name
        await put(rig, files, ref, "/etc", tar_of(("kept", b"kept")))
        await backend.take_snapshot(await rig.permit("snapshot"), ref, name, False)
        try:
            assert name in [one.name for one in await backend.snapshots()]
            copy = await backend.restore_snapshot(await rig.permit("restore"), name, rig.spec().name, ())
            rig.made.append(copy)
            assert await get(rig, files, copy, "/etc/kept") == {"kept": b"kept"}
        finally:
            await backend.remove_snapshot(await rig.permit("remove-snapshot"), name)
        with pytest.raises(NotFound):
            await backend.remove_snapshot(await rig.permit("remove-snapshot"), name)

    async def test_a_fork_is_a_copy_with_a_name_of_its_own(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Snapshots, Capability.FORK)
        ref, name = await rig.make(), rig.spec().name
        copy = await backend.fork(await rig.permit("fork"), ref, name, ())
        rig.made.append(copy)
        assert copy != ref
        assert (await rig.look(copy)).name == name

    async def test_a_missing_image_leaves_nothing(self, rig: Rig) -> None:
        rig.needs(Capability.CREATE)
        spec = replace(rig.spec(), image="sandbox-console-test/no-such-image:ever")
        if not {field: text for field, text in rig.backend.validate(spec).items() if text}:
            rig.needs_sh(Capability.CREATE)  # a backend in memory accepts any name
            making = rig.make(start=False, name=spec.name, image=spec.image)
            await rig.refusal(making, f"the image {spec.image}, which is nowhere")
        assert spec.name not in [one.name for one in await rig.backend.list()]
