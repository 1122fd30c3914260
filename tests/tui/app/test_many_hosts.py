"""The header over many hosts: how many answer, and the names of the rest. The form's choice among them."""

from __future__ import annotations

from msgspec import structs
from tests.tui.app.scene import fleet, until
from tests.tui.app.test_form_drafts import opened
from textual.widgets import Select

from sandbox_console.model.sandbox import BackendHealth, HealthState, SandboxRef, Status
from sandbox_console.service import Config
from sandbox_console.service.host_options import HostOptions
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.fleet.header import backends_line, dead_banner

OK, GONE = HealthState.OK, HealthState.UNREACHABLE


def hosts(ok: int, dead: int, reason: str = "no answer within 8 s") -> list[BackendHealth]:
    found = [BackendHealth("docker", f"web{at}", OK) for at in range(ok)]
    return found + [BackendHealth("docker", f"db{at}", GONE, reason, since=1e9 + at) for at in range(dead)]


def test_many_hosts_are_counted_and_few_are_named():
    assert backends_line([*hosts(97, 3), BackendHealth("bubblewrap", "local", OK)]).plain == (
        "✕ docker 97 of 100 answer   ● bubblewrap ok"
    )
    assert backends_line(hosts(100, 0)).plain == "● docker 100 hosts ok"
    assert backends_line(hosts(2, 1)).plain.count("docker@") == 3
    connecting = [BackendHealth("docker", f"web{at}", HealthState.CONNECTING) for at in range(9)]
    assert backends_line(connecting).plain.endswith("docker 0 of 9 answer")


def test_the_rest_are_named_by_reason_and_dated():
    few = dead_banner(hosts(0, 3)[:1]).plain
    assert few.startswith("✕ docker@db0 unreachable: no answer within 8 s since ")
    many = hosts(0, 12)[:12] + hosts(0, 1, "refused\x1b[2J\nhostile")
    first, second = dead_banner(many).plain.split("\n")
    assert first.startswith("✕ 12 hosts of docker since ")
    assert first.endswith(": no answer within 8 s: db0, db1, db2, db3, db4, db5, db6, db7 and 4 more")
    assert second.startswith("✕ docker@db0 unreachable: refused")
    assert "\x1b" not in second
    lines = dead_banner([one for at in range(9) for one in hosts(0, 1, f"reason {at}")]).plain.split("\n")
    assert lines[3:] == ["✕ 6 other reasons"]


async def test_the_form_offers_the_host_with_the_fewest_running(run_app):
    def held(host: str, count: int) -> FakeBackend:
        made = fleet()[0]
        refs = [SandboxRef("fake", host, f"{host}{at:010}") for at in range(count)]
        return FakeBackend([structs.replace(made, ref=ref, status=Status.RUNNING) for ref in refs], host=host)

    tables = {"web*": HostOptions(groups=("web",)), "web2": HostOptions(max_running=1)}
    hosts = [held("web1", 3), held("web2", 1), held("db1", 0)]
    async with run_app(*hosts, config=Config(backend="fake", hosts=tables)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.sandboxes) == 4)
        form = await opened(app, pilot)
        line = form.query_one("#backend", Select)
        labels = [str(label) for label, _ in line._options]
        assert labels[:2] == ["fake: fewest running of 3", "fake, web: fewest running of 2"]
        all_hosts, web = (value for _, value in line._options[:2])
        line.value = all_hosts
        await until(pilot, lambda: line.value == ("fake", "db1"))
        line.value = web
        await until(pilot, lambda: line.value == ("fake", "web1"))  # web2 is full
