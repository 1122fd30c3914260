"""A backend that says what does not hold is caught by the suite."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider, egress, jail, launch, syscall_filter
from sandbox_console.backends.bubblewrap import backend as of_bubblewrap
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.errors import Conflict
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import Profile, Rig, allowlist, deny_all, promises
from sandbox_console.testing.conformance import rig as rigging
from sandbox_console.testing.conformance.allowlist import Allowlist
from sandbox_console.testing.conformance.promises import Promises
from sandbox_console.testing.conformance.walls import Walls
from sandbox_console.testing.permits import permit_maker

pytestmark = requires("bubblewrap")
CHECKS = (Walls.test_system_calls_are_filtered_for_all_that_runs_in_it,
          Walls.test_their_filter_is_left_out_or_relaxed_where_asked)  # fmt: skip


def _sleeping(name: str) -> SandboxSpec:
    return SandboxSpec(name, command=("sleep", "1000"))


@pytest.fixture
async def rig(tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 good.example.com\n127.0.0.1 bad.example.com\n")
    state = tmp_path / "bubblewrap"
    [backend] = BubblewrapProvider.backends(BackendSettings(state, {"egress_hosts": str(hosts)}))
    assert isinstance(backend, BubblewrapBackend)
    await backend.open()
    async with permit_maker(tmp_path) as permit:
        outside = ("good.example.com", "bad.example.com", "127.0.0.1")
        profile = Profile("lies", _sleeping, disk=(state,), outside=outside)
        made = Rig(backend, profile, permit, tmp_path)
        yield made
        await made.clean_up()
    await backend.close()


async def test_the_honest_one_passes(rig: Rig) -> None:
    for check in CHECKS:
        await check(Walls(), rig)


async def test_one_that_filters_nothing_and_says_that_it_does_is_caught(rig: Rig, monkeypatch) -> None:
    said = syscall_filter.word

    def word(spec: SandboxSpec) -> str:
        return "filtered" if said(spec) == "unfiltered" else said(spec)

    monkeypatch.setattr(syscall_filter, "word", word)
    monkeypatch.setattr(syscall_filter, "program", lambda _: b"")
    with pytest.raises(AssertionError, match="no filter holds"):
        await CHECKS[0](Walls(), rig)
    with pytest.raises(AssertionError):
        await CHECKS[1](Walls(), rig)


async def test_one_whose_filter_lets_namespaces_through_is_caught(rig: Rig, monkeypatch) -> None:
    real = launch.order

    def order(*args):
        asked = real(*args)
        asked["args"] = [one for one in asked["args"] if one != "--disable-userns"]
        return asked

    monkeypatch.setattr(launch, "order", order)
    whole = syscall_filter.seccomp.program
    monkeypatch.setattr(syscall_filter.seccomp, "program", lambda **asked: whole(**{**asked, "nested": True}))
    with pytest.raises(AssertionError, match="it makes user namespaces"):
        await CHECKS[0](Walls(), rig)


async def test_one_that_leaves_no_filter_out_is_caught(rig: Rig, monkeypatch) -> None:
    whole = syscall_filter.seccomp.program
    monkeypatch.setattr(syscall_filter, "program", lambda _: whole())
    with pytest.raises(AssertionError):
        await CHECKS[1](Walls(), rig)


async def test_one_that_relaxes_nothing_is_caught(rig: Rig, monkeypatch) -> None:
    monkeypatch.setattr(
        syscall_filter, "program", lambda spec: b"" if spec.seccomp else syscall_filter.seccomp.program()
    )
    with pytest.raises(AssertionError, match="nested_userns makes none"):
        await CHECKS[1](Walls(), rig)


# -- promises: each is broken in turn, and its check tells


def without(words: list, name: str, *instead: str) -> list:
    """bwrap's arguments with the three that bind the workspace replaced."""
    at = words.index(name) - 2
    return [*words[:at], *instead, *words[at + 3 :]]


async def caught(check, rig: Rig, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        await check(None, rig)


def claims(rig: Rig, monkeypatch, *more: Capability) -> None:
    honest = rig.backend.capabilities()
    said = Capabilities(honest.supported | set(more), honest.reasons)
    monkeypatch.setattr(rig.backend, "capabilities", lambda: said)


@pytest.mark.parametrize(
    ("instead", "says"),
    [(("--tmpfs", "/workspace"), "does not see"), (("--ro-bind", "FOLDER", "/workspace"), "does not come out")],
)
async def test_one_whose_workspace_is_another_is_caught(rig: Rig, monkeypatch, instead, says) -> None:
    real = jail.words

    def words(spec, *rest):
        made = [str(spec.workspace) if one == "FOLDER" else one for one in instead]
        return without(real(spec, *rest), "/workspace", *made)

    monkeypatch.setattr(jail, "words", words)
    await caught(Promises.test_a_workspace_is_the_folder_of_the_host, rig, says)


async def test_one_that_runs_it_as_another_user_is_caught(rig: Rig, monkeypatch) -> None:
    real = jail.words
    monkeypatch.setattr(jail, "words", lambda spec, *rest: real(structs.replace(spec, user=None), *rest))
    monkeypatch.setattr(jail, "environment", lambda spec, _: {"PATH": jail.PATH, "HOME": "/tmp"})
    await caught(Promises.test_its_user_runs_all_of_it, rig, "another user")


async def test_one_that_takes_any_runtime_is_caught(rig: Rig, monkeypatch) -> None:
    claims(rig, monkeypatch, Capability.RUNTIME)
    monkeypatch.setattr(of_bubblewrap, "refuse", lambda *_: None)
    await caught(Promises.test_a_runtime_that_is_not_there_is_refused, rig, "it took a runtime")


@pytest.mark.parametrize("field", ["max_duration_s", "idle_timeout_s"])
async def test_one_that_never_ends_it_is_caught(rig: Rig, monkeypatch, field) -> None:
    real = launch.order
    monkeypatch.setattr(launch, "order", lambda *args: real(*args) | {field: None})
    monkeypatch.setattr(rigging, "_waits", [4.0])
    check = {
        "max_duration_s": Promises.test_its_longest_life_ends_it_though_it_is_busy,
        "idle_timeout_s": Promises.test_idle_it_is_ended_and_busy_it_is_not,
    }[field]
    await caught(check, rig, "it is running, not exited")


async def test_one_that_takes_a_busy_one_for_idle_is_caught(rig: Rig, monkeypatch) -> None:
    real = launch.order
    monkeypatch.setattr(launch, "order", lambda *args: real(*args) | {"idle_timeout_s": None, "max_duration_s": 1.5})
    await caught(Promises.test_idle_it_is_ended_and_busy_it_is_not, rig, "while a command runs")


@pytest.mark.parametrize(
    "check",
    [
        Promises.test_less_memory_holds_at_once,
        Promises.test_fewer_processes_hold_at_once,
        Promises.test_less_cpu_holds_at_once,
    ],
)
async def test_one_that_only_writes_new_limits_down_is_caught(rig: Rig, monkeypatch, check) -> None:
    backend = rig.backend
    assert isinstance(backend, BubblewrapBackend)

    async def update(_permit, ref, spec) -> None:
        backend._change(ref, spec)

    monkeypatch.setattr(backend, "update", update)
    rig.profile = structs.replace(rig.profile, least_cpus=0.02)  # beside others an unlimited one has little, too
    await caught(check, rig, "the lower limit does not hold")


@pytest.mark.parametrize(
    ("refuses", "says"), [(False, "it took a memory_mib"), (True, "it has no more memory than before")]
)
async def test_one_that_only_says_that_its_memory_has_bounds_is_caught(rig: Rig, monkeypatch, impatient, refuses, says):
    real = rig.backend.update

    async def beyond(_ref, spec) -> dict[str, str]:
        return {"memory_mib": "it gives nothing back"} if spec.memory_mib == 64 else {}

    async def update(permit, ref, spec) -> None:
        if refuses and spec.memory_mib == 64:
            raise Conflict("it gives nothing back")
        await real(permit, ref, spec)

    monkeypatch.setattr(rig.backend, "out_of_bounds", beyond, raising=False)
    monkeypatch.setattr(rig.backend, "update", update)
    await caught(Promises.test_less_memory_holds_at_once, rig, says)


@pytest.mark.parametrize("at", [0, promises._PIECE - 3, 5 * promises._PIECE])
def test_a_value_is_found_wherever_it_is_in_a_file_with_holes(tmp_path, at):
    file = tmp_path / "disk"
    with file.open("wb") as stream:
        if at < promises._PIECE:
            stream.write(b"x" * at)
        stream.seek(at)
        stream.write(b"the value")
        stream.truncate(1 << 40)
    assert promises._holds(file, b"the value")
    assert not promises._holds(file, b"another")


async def test_one_whose_main_command_lacks_the_file_is_caught(rig: Rig, monkeypatch) -> None:
    monkeypatch.setattr(jail, "_secret_files", lambda _: ["--perms", "0700", "--dir", "/run/secrets"])
    await caught(Promises.test_a_secret_file_reaches_both_and_is_no_variable, rig, "otherwise")


async def test_one_that_gives_the_file_as_a_variable_too_is_caught(rig: Rig, monkeypatch) -> None:
    real = jail.environment
    monkeypatch.setattr(
        jail, "environment", lambda spec, given: real(spec, [structs.replace(one, inject="env") for one in given])
    )
    await caught(Promises.test_a_secret_file_reaches_both_and_is_no_variable, rig, "a command has it otherwise")


async def test_one_that_keeps_the_file_on_disk_is_caught(rig: Rig, monkeypatch) -> None:
    real = launch.order

    def order(record, secrets, *rest):
        for one in secrets:
            (record.folder / one.name).write_text(one.value)
        return real(record, secrets, *rest)

    monkeypatch.setattr(launch, "order", order)
    await caught(Promises.test_a_secret_file_is_on_no_disk_of_the_host, rig, "on the host's disk")


@pytest.mark.parametrize(
    ("value", "says"), [(lambda one: one.value, "the value itself"), (lambda _: "", "there is no placeholder")]
)
async def test_one_whose_placeholder_is_none_is_caught(rig: Rig, monkeypatch, value, says) -> None:
    claims(rig, monkeypatch, Capability.SECRET_PLACEHOLDER)
    real = jail.environment
    monkeypatch.setattr(
        jail, "environment", lambda spec, given: real(spec, given) | {one.name: value(one) for one in given}
    )
    await caught(Promises.test_a_placeholder_is_all_that_a_guest_has, rig, says)


# -- an allowlist


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(rigging, "_waits", [4.0])


async def test_one_whose_gateway_lets_other_names_through_is_caught(rig: Rig, monkeypatch) -> None:
    real = egress.gateway_rules.prepare

    def prepare(folder, name, patterns, hosts):
        more = [one.replace("good.", "bad.") for one in patterns]
        real(folder, name, [*patterns, *more], hosts)

    monkeypatch.setattr(egress.gateway_rules, "prepare", prepare)
    await caught(Allowlist.test_an_allowlist_lets_through_what_it_names_and_no_more, rig, "not on the list")


async def test_one_whose_gateway_lets_nothing_through_is_caught(rig: Rig, monkeypatch, impatient) -> None:
    real = egress.gateway_rules.prepare
    monkeypatch.setattr(egress.gateway_rules, "prepare", lambda folder, name, _, hosts: real(folder, name, [], hosts))
    await caught(Allowlist.test_an_allowlist_lets_through_what_it_names_and_no_more, rig, "is not let through")


async def test_one_whose_gateway_takes_addresses_is_caught(rig: Rig, monkeypatch) -> None:
    real, listening, ports = egress.gateway_rules.prepare, allowlist.listening, []

    @asynccontextmanager
    async def noted(rig):
        async with listening(rig) as listener:
            ports.append(listener.port)
            yield listener

    def prepare(folder, name, patterns, hosts):
        real(folder, name, [*patterns, f"127.0.0.1:{ports[0]}"], hosts)

    monkeypatch.setattr(allowlist, "listening", noted)
    monkeypatch.setattr(egress.gateway_rules, "prepare", prepare)
    await caught(Allowlist.test_an_allowlist_is_no_way_past_its_gateway, rig, "past the gateway")


async def test_a_guest_is_counted_though_the_listener_is_slow_to_tell(rig: Rig, monkeypatch) -> None:
    async def slowly(self) -> None:
        while line := await self.process.stdout.readline():
            await asyncio.sleep(0.3)
            self.clients.append(int(line))

    monkeypatch.setattr(deny_all.Listener, "_read", slowly)
    async with deny_all.listening(rig) as listener:
        socket.create_connection(("127.0.0.1", listener.port)).close()
        assert await deny_all.guests(rig, listener) == 1
        assert await deny_all.guests(rig, listener) == 1
        assert await deny_all.guests(rig, listener) == 1


async def test_one_that_changes_no_rule_is_caught(rig: Rig, monkeypatch, impatient) -> None:
    async def nothing(*_) -> None: ...

    monkeypatch.setattr(rig.backend, "set_egress", nothing)
    await caught(Allowlist.test_a_rule_that_is_taken_back_holds_no_more, rig, "not in force")


async def test_one_that_keeps_no_record_is_caught(rig: Rig, monkeypatch, impatient) -> None:
    async def none(*_, **__):
        for one in ():
            yield one

    monkeypatch.setattr(rig.backend, "egress_records", none)
    await caught(Allowlist.test_what_is_refused_is_on_record, rig, "the refusal of a host is not reported")


# -- a disclaimer


async def test_one_without_walls_says_so_and_is_not_asked_for_them(rig: Rig) -> None:
    rig.profile = structs.replace(rig.profile, no_walls="it runs programs of this host as they are")
    with pytest.raises(pytest.skip.Exception, match="as they are"):
        await Walls.test_a_guest_cannot_gain_privileges(Walls(), rig)
