"""Published ports on the screen: the column, the filter, the detail, the form, and what is copied."""

from __future__ import annotations

import shlex

import pytest
from msgspec import structs
from tests.tui.app.scene import fleet, ref, sandbox, screen_text, until

from sandbox_console.cli.parser import parse as parse_words
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import Fact, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.effects.change_plan import make_plan
from sandbox_console.tui.detail.spec_tab import spec_words
from sandbox_console.tui.fleet.columns import USUAL
from sandbox_console.tui.fleet.filter.filter_parser import FilterError, parse_filter
from sandbox_console.tui.fleet.fleet_rows import LOOKS, ORDERS
from sandbox_console.tui.form.change_plan import plan_words
from sandbox_console.tui.main.dispatch import commands_of
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.port_text import address, openings

ASKED = SandboxSpec("web", image="python:3.12", ports=("8080:80", "443", "0.0.0.0:53:53"))
WEB = sandbox("1111", "web", spec=ASKED, effective=(
    Fact("port 80/tcp", "127.0.0.1:8080"), Fact("egress", "none"), Fact("port 443/tcp", "127.0.0.1:40123"),
))  # fmt: skip
THEIRS = sandbox("2222", "dns", managed=False, effective=(
    Fact("port 53/udp", "0.0.0.0:53, [::]:53"), Fact("port 8000/tcp", "[::]:9000"), Fact("port 9/tcp", "not published"),
))  # fmt: skip
BARE = sandbox("3333", "bare", Status.EXITED, spec=SandboxSpec("bare", ports=("7070",)))


def test_where_it_is_stands_before_where_it_was_asked():
    assert list(map(str, openings(WEB))) == ["0.0.0.0:53→53", "8080→80", "40123→443"]
    assert list(map(str, openings(THEIRS))) == ["0.0.0.0:53→53/udp", "[::]:53→53/udp", "[::]:9000→8000"]
    assert list(map(str, openings(BARE))) == ["free→7070"]
    assert openings(fleet()[0]) == ()
    hostile = sandbox("4", "x", effective=(Fact("port \x1b[2J/tcp", "\x1b]52;c;x\x07:1"), Fact("port 1/tcp", "a:b:c")))
    assert openings(hostile) == ()


def test_the_address_is_one_that_a_browser_takes():
    assert [address(one) for one in (WEB, THEIRS, BARE)] == ["http://127.0.0.1:53", "http://[::1]:9000", ""]
    tls = sandbox("5", "x", spec=SandboxSpec("x", ports=("[::1]:8443:443",)))
    assert address(tls) == "https://[::1]:8443"


def test_the_column_is_there_to_be_chosen_and_is_sorted_by_the_place():
    assert "ports" not in USUAL
    told, style = LOOKS["ports"](WEB, FleetState(), 0.0)
    assert (told, style) == ("0.0.0.0:53→53, 8080→80, 40123→443", "")
    assert LOOKS["ports"](BARE, FleetState(), 0.0) == ("free→7070", "dim")
    assert LOOKS["ports"](fleet()[0], FleetState(), 0.0)[0] == "–"
    assert ORDERS["ports"](BARE, FleetState()) < ORDERS["ports"](WEB, FleetState())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("port:8080", {"web"}), ("port:80", {"web"}), ("port=8000,7070", {"dns", "bare"}), ("ports>2", {"web", "dns"}),
        ("port!=53", {"bare", "agent"}), ("!port:53", {"bare", "agent"}), ("ports=0", {"agent"}), ("port:1", set()),
        ('"port:8080"', set()),
    ],
)  # fmt: skip
def test_the_filter_finds_by_either_side(line, names):
    assert {one.name for one in (WEB, THEIRS, BARE, fleet()[0]) if parse_filter(line).matches(one)} == names


@pytest.mark.parametrize(("line", "at"), [("port:", 5), ("port>80", 4), ("x port:http", 7), ("port=80,x", 5)])
def test_a_port_that_is_no_number_says_where(line, at):
    with pytest.raises(FilterError) as told:
        parse_filter(line)
    assert told.value.position == at


def test_the_spec_tells_places_under_what_is_asked_and_a_change_makes_it_anew():
    lines = spec_words(WEB, None).plain.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("ports"))
    assert "8080:80 443 0.0.0.0:53:53" in lines[at]
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["port", "80/tcp", "127.0.0.1:8080"], ["port", "443/tcp", "127.0.0.1:40123"],
    ]  # fmt: skip
    plan = make_plan(ASKED, structs.replace(ASKED, ports=()), Capabilities(frozenset(Capability)), {})
    told = plan_words(plan).plain
    assert "↻ recreate" in told
    assert "8080:80 443 0.0.0.0:53:53 → (none)" in told


def test_the_command_that_makes_one_like_it_publishes_its_ports():
    create = next(one.action for one in commands_of([WEB]) if one.label == "Create")
    args = parse_words(shlex.split(create)[1:])
    assert (args.verb, args.name, tuple(args.publish)) == ("create", "web", ASKED.ports)
    assert not [one for one in commands_of([THEIRS]) if one.label == "Create"], "nobody knows its spec"


async def test_the_address_is_copied_and_shown(run_app, fake):
    web = structs.replace(WEB, ref=ref("aaaaaaaaaaaa"))
    async with run_app() as (app, pilot):
        await fake._put(web)
        await until(pilot, lambda: app.fleet.sandboxes[web.ref].name == "web")
        app.main.table.move_to(web.ref)
        await until(pilot, lambda: "● running  0.0.0.0:53→53 8080→80 40123→443" in screen_text(app))
        await pilot.press("at")
        await until(pilot, lambda: app.clipboard == "http://127.0.0.1:53")
        assert app.message_log[-1][2] == "Copied http://127.0.0.1:53"
        app.main.table.move_to(ref("bbbbbbbbbbbb"))
        await pilot.press("at")
        await until(pilot, lambda: app.message_log[-1][2] == "address: builder: it publishes no port.")


async def test_what_the_list_does_not_know_of_what_others_made_is_asked_for(run_app, fake, monkeypatch):
    inspect = fake.inspect

    async def asked(ref):
        return structs.replace(await inspect(ref), effective=THEIRS.effective)

    async with run_app() as (app, pilot):
        monkeypatch.setattr(fake, "inspect", asked)
        app.main.table.move_to(ref("eeeeeeeeeeee"))
        await pilot.press("at")
        await until(pilot, lambda: app.clipboard == "http://[::1]:9000")
        await pilot.press("y")
        await until(pilot, lambda: "[::]:9000" in screen_text(app))


async def test_a_wrong_port_is_told_beside_its_field(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: app.screen.query("#field-ports"))
        app.screen.query_one("#field-ports").focus()
        await pilot.press(*"80x")
        await until(pilot, lambda: "'80x' is not a port from 1 to 65535" in screen_text(app))
