from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from tests.service.conftest import REF

from sandbox_console.errors import Ambiguous, BackendUnreachable, ConfigError, NotFound, UsageError
from sandbox_console.model.action import Stop
from sandbox_console.model.event import Acted, Changed, Gap, Listed, Removed, Sampled
from sandbox_console.model.log import LogGap, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, find_paths, load, open_console
from sandbox_console.service.reads.hub import ACTED_KEPT, Hub
from sandbox_console.testing.fake_backend import FakeBackend

VALUE = "hunter2-is-the-value"

# Finding


def named(backend, id_, name):
    return Sandbox(SandboxRef(backend, "local", id_), name, Status.RUNNING)


@pytest.fixture
def fleet(home):
    one = FakeBackend([named("one", "aaaaaa11", "web"), named("one", "bbbbbb22", "job")], name="one")
    two = FakeBackend([named("two", "aaaaaa33", "web")], name="two")
    dead = FakeBackend(name="dead", dead=True, reason="no cable")
    return [one, two, dead]


@pytest.mark.parametrize(
    ("name", "ref"),
    [("job", "one/local/bbbbbb22"), ("two:web", "two/local/aaaaaa33"), ("one/local/aaaaaa11", "one/local/aaaaaa11"), ("bbbbbb", "one/local/bbbbbb22")],
)  # fmt: skip
async def test_a_name_is_found(fleet, name, ref):
    async with open_console(Config(), backends=fleet) as console:
        assert str((await console.find(name)).ref) == ref


async def test_a_name_that_fits_two_lists_both(fleet):
    async with open_console(Config(), backends=fleet) as console:
        with pytest.raises(Ambiguous) as caught:
            await console.find("web")
        assert caught.value.candidates == ["one/local/aaaaaa11", "two/local/aaaaaa33"]
        assert caught.value.exit_code == 2


async def test_what_is_not_found_names_who_could_not_be_asked(fleet):
    async with open_console(Config(), backends=fleet) as console:
        with pytest.raises(NotFound, match=r"dead \(no cable\)"):
            await console.find("nothing")
        with pytest.raises(BackendUnreachable, match="no cable"):
            await console.find("dead:web")
        with pytest.raises(UsageError, match="no backend"):
            await console.find("nowhere:web")


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), 0.0])
async def test_one_backends_bug_hides_no_other(fleet, fault):
    fleet[1].faults.verbs["list"] = fault
    async with open_console(Config(), backends=fleet) as console:
        found, healths = await console.list()
        assert "job" in [one.name for one in found]
        states = {health.backend: (health.state, health.reason) for health in healths}
        assert states["dead"] == (HealthState.UNREACHABLE, "no cable")
        if fault:
            assert states["two"] == (HealthState.UNREACHABLE, "RuntimeError: a bug")


async def test_a_backend_whose_opening_failed_is_opened_again(home, box):
    backend = FakeBackend([box], faults={"open": RuntimeError("not yet")})
    async with open_console(Config(), backends=[backend]) as console:
        assert not (await console.health())[0].ok
        del backend.faults.verbs["open"]
        assert [one.name for one in (await console.list())[0]] == ["box"]


# Watching


async def test_watching_survives_a_backends_death(home, box):
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend]) as console:
        view = console.watch()

        async def until(fits):
            async with asyncio.timeout(5):
                while not any(fits(event) for event in await view.batch()):
                    pass

        await until(lambda event: isinstance(event, Listed))
        await backend.die("unplugged")
        await until(lambda event: getattr(getattr(event, "health", None), "reason", "") == "unplugged")
        await backend.revive()
        await until(lambda event: isinstance(event, Listed))


async def test_states_coalesce_and_the_latest_stands_last(box):
    hub = Hub()
    view = hub.subscribe()
    await view.batch()
    for number in range(1000):
        hub.publish(Changed(structs.replace(box, detail=str(number))))
        hub.publish(Sampled(REF, Stats(number)))
    events = await view.batch()
    assert [type(event) for event in events] == [Changed, Sampled]
    assert events[0].sandbox.detail == "999"
    hub.publish(Changed(box))
    hub.publish(Listed("fake", "local", ()))
    assert [type(event) for event in await view.batch()] == [Changed, Listed]
    hub.publish(Changed(box))
    hub.publish(Removed(REF))
    assert await view.batch() == [Removed(REF)]


async def test_a_slow_viewer_sees_how_much_it_missed():
    hub = Hub()
    slow, closed = hub.subscribe(), hub.subscribe()
    closed.close()
    await slow.batch()
    for number in range(ACTED_KEPT + 7):
        hub.publish(Acted(number, "stop", "t", "ok"))
    events = await slow.batch()
    assert events[0] == Gap(7)
    assert events[1].audit_id == 7
    assert len(events) == ACTED_KEPT + 1


async def test_a_stuck_viewer_stalls_no_action(home, box):
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        console.watch()  # and nobody reads it
        async with asyncio.timeout(5):
            await console.perform(Stop(REF)).result()


# Logs


async def shown(console, **query):
    return [item async for batch in console.logs(REF, LogQuery(**query)) for item in batch]


def record(data, at=1, stream=Stream.STDOUT):
    return LogRecord(at, stream, data)


async def test_logs_mask_secrets_split_across_records(home, box, monkeypatch):
    monkeypatch.setenv("T", VALUE)
    box = structs.replace(box, spec=structs.replace(box.spec, secrets=("T",)))
    items = [
        record(b"a hunter2-is"),
        record(b"hunter", stream=Stream.STDERR),
        record(b"-the-value z\n"),
        LogGap(5, "lost"),
        record(b"hunter2-"),
    ]
    config = Config(secrets={"T": SecretSource(source="env:T")})
    async with open_console(config, backends=[FakeBackend([box], logs={REF.id: items})]) as console:
        found = await shown(console)
        text = {
            stream: b"".join(i.data for i in found if isinstance(i, LogRecord) and i.stream is stream)
            for stream in Stream
        }
        assert text[Stream.STDOUT] == b"a [secret] z\nhunter2-", "the last bytes are lost"
        assert text[Stream.STDERR] == b"hunter"
        assert LogGap(5, "lost") in found


async def test_logs_without_secrets_are_the_bytes_as_they_are(home, box):
    items = [record(b"\xff\x00 hunter2-\n"), record(b"end")]
    async with open_console(Config(), backends=[FakeBackend([box], logs={REF.id: items})]) as console:
        assert await shown(console) == items


# Configuration


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[policy]\nread_onli = true", "policy.read_only"),
        ("polcy = 1", "policy"),
        ("[secrets.T]\nfrom_ = 'env:X'", "secrets.T.from"),
        ("[policy]\nread_only = 'yes'", "policy.read_only"),
        ("[policy]\negress = ['https://x']", "scheme"),
        ("[secrets.T]\nfrom = 'vault:X'", "vault"),
        ("[tui]\nlog_memory_mib = 'much'", "log_memory_mib"),
        ("backend = 1", "backend"),
        ("[policy", "TOML"),
    ],
)
def test_a_config_that_does_not_hold_is_told_by_its_key(home, toml, words):
    path = home / "config.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load(find_paths())
    assert words in caught.value.message + caught.value.hint
    assert str(path) in caught.value.message


def test_the_environment_overrides_the_file(home, monkeypatch):
    (home / "config.toml").write_text("[policy]\nread_only = false\nmax_cpus = 1.0")
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__READ_ONLY", "true")
    monkeypatch.setenv("SANDBOX_CONSOLE_BACKEND", "docker")
    config = load(find_paths())
    assert (config.policy.read_only, config.policy.max_cpus, config.backend) == (True, 1.0, "docker")
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__READ_ONLI", "true")
    with pytest.raises(ConfigError, match="read_onli"):
        load(find_paths())


def test_a_config_file_that_was_named_must_be_there(home):
    with pytest.raises(ConfigError, match="does not exist"):
        load(find_paths(home / "none.toml"), required=True)
