"""The configuration is read again while the app runs; a broken one is told, and the one before stays."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from tests.tui.app.scene import NOW, screen_text, until

from sandbox_console.errors import Denied
from sandbox_console.model.action import Kill
from sandbox_console.service import find_paths, open_console
from sandbox_console.tui.app import ConsoleApp

APPLIED = "Applied now: secrets."
GOOD = '[tui]\nstats_interval_s = 3600\n\n[secrets.ONE]\nfrom = "env:ONE"\n'


@pytest.fixture
def config():
    """Write the configuration as an editor does: a new file in place of the old one."""
    path = find_paths().config_file
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(text):
        part = path.with_suffix(".part")
        part.write_text(text)
        part.chmod(0o600)
        part.replace(path)

    write(GOOD)
    return write


@pytest.fixture
def run(fake, config):
    @asynccontextmanager
    async def run(**options):
        async with open_console(backends=[fake], **options) as console:
            app = ConsoleApp(console, clock=lambda: NOW)
            async with app.run_test(size=(120, 40), notifications=True) as pilot:
                await until(pilot, lambda: app.fleet.sandboxes)
                yield app, pilot

    return run


def told(app):
    return " ".join(screen_text(app).split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[secrets.ONE]\nfrom = 'env:ONE'\n[tui\n", "line 3"),
        ("[secrets.ONE]\nfrom = 'env:ONE'\n[policy]\nread_onli = true\n", "line 4: unknown key policy.read_onli"),
        ("[secrets.ONE]\nfrom = 'nowhere'\n", "line 1: secrets.ONE: from is not a source"),
    ],
)
async def test_a_broken_one_is_told_with_its_line_and_the_one_before_stays(run, config, text, why):
    async with run() as (app, pilot):
        config(text)
        await until(pilot, lambda: "CONFIGURATION NOT USED" in screen_text(app))
        assert why in told(app), told(app)
        assert "The previous one stays in force" in told(app)
        assert app.service.secrets.names == ["ONE"]
        config(GOOD)
        await until(pilot, lambda: "CONFIGURATION NOT USED" not in screen_text(app))
        assert any("It is valid again" in text for _, _, text in app.message_log)


async def test_a_new_secret_and_a_new_policy_are_in_force_at_once(run, config, fake):
    async with run() as (app, pilot):
        config(GOOD + '[secrets.TWO]\nfrom = "env:TWO"\n[policy]\ndeny = ["kill"]\n[audit]\nkeep_days = 3\n')
        await until(pilot, lambda: app.service.secrets.names == ["ONE", "TWO"])
        await until(pilot, lambda: any("Applied now: policy, secrets" in text for _, _, text in app.message_log))
        assert any("Applied at the next start: audit." in text for _, _, text in app.message_log)
        [first, *_] = app.fleet.sandboxes
        with pytest.raises(Denied, match="the policy denies kill"):
            await app.service.perform(Kill(first)).result()
        config(GOOD)
        await until(pilot, lambda: app.service.secrets.names == ["ONE"])
        await app.service.perform(Kill(first)).result()


async def test_each_change_is_told_though_it_is_of_the_same_part_as_the_one_before(run, config):
    async with run() as (app, pilot):
        for count, names in enumerate((["ONE", "TWO"], ["ONE", "THREE", "TWO"]), 1):
            config(
                "".join(f'[secrets.{name}]\nfrom = "env:{name}"\n' for name in names)
                + "[tui]\nstats_interval_s = 3600\n"
            )
            await until(pilot, lambda names=names: sorted(app.service.secrets.names) == names)
            await until(pilot, lambda count=count: sum(APPLIED in text for _, _, text in app.message_log) == count, 5)


async def test_read_only_outlives_a_configuration_that_says_otherwise(run, config):
    async with run(read_only=True) as (app, pilot):
        config(GOOD + "[policy]\nread_only = false\nmax_cpus = 2\n")
        await until(pilot, lambda: app.service.config.policy.max_cpus == 2)
        assert app.service.read_only


async def test_one_that_others_can_write_to_is_not_used(run, config):
    async with run() as (app, pilot):
        path = find_paths().config_file
        path.chmod(0o666)
        await until(pilot, lambda: "CONFIGURATION NOT USED" in screen_text(app))
        assert "is not used" in told(app)
        path.chmod(0o600)
        await until(pilot, lambda: "CONFIGURATION NOT USED" not in screen_text(app))


async def test_a_file_that_is_removed_leaves_the_defaults(run, config):
    async with run() as (app, pilot):
        find_paths().config_file.unlink()
        await until(pilot, lambda: app.service.secrets.names == [])
