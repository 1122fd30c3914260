"""The filter line: what each form finds, where it is wrong, and that nothing typed crashes or hangs it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.tui.app.scene import NOW, fleet, samples, sandbox

from sandbox_console.model.sandbox import Exit, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.tui.fleet.filter.field_tests import NAMES
from sandbox_console.tui.fleet.filter.filter_parser import FilterError, parse_filter
from sandbox_console.tui.fleet.filter.match_cache import MatchCache
from sandbox_console.tui.state.fleet_state import Denial, FleetState

FLEET = [
    *fleet(),
    structs.replace(
        sandbox("9999", "web-1", Status.EXITED, exit=Exit(0), restarts=5, image="node:22", labels={"tier": "front"}),
        ref=SandboxRef("docker", "web1", "9999"),
        created_at=NOW - 7200,
        spec=SandboxSpec("web-1", image="node:22", egress=(), secrets=("A", "B")),
    ),
]
BY_ID = {one.ref.id: one for one in FLEET}
STATE = FleetState(
    sandboxes={one.ref: one for one in FLEET},
    stats={BY_ID[key].ref: values[-1] for key, values in samples().items()},
    denied={FLEET[0].ref: Denial(3, "evil.example.com", NOW)},
)
ALL = {one.name for one in FLEET}


def found(text):
    parsed = parse_filter(text)
    names = {one.name for one in FLEET if parsed.matches(one, STATE, NOW)}
    assert parsed.begun or names == {one.name for one in parsed.select(FLEET, STATE, NOW)}
    return names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ALL), ("  ", ALL), ("!", ALL), ("-l", ALL), ("-f", ALL),
        ("agent", {"agent"}), ("AGENT", set()), ("^(agent|done)$", {"agent", "done"}),
        ("!running", {"crashed", "done", "lost", "web-1"}), ("!!running", {"agent", "builder", "theirs"}),
        ("postgres", {"theirs"}), ("cccc", {"crashed"}), ("a.*t$", {"agent", "lost", "builder", "theirs"} & {"agent"}),
        ("-l team=red", {"agent"}), ("-l team", {"agent", "done"}), ("-l team,team=blue", {"done"}),
        ("!-l team", ALL - {"agent", "done"}),
        ("-l team!=red", ALL - {"agent"}), ("-l team==red", {"agent"}), ("-l !team", ALL - {"agent", "done"}),
        ("-l team,team!=red", {"done"}), ("-f bdr", {"builder"}), ("-f ^x", set()),
        ('"python:3.12"', {"agent", "crashed", "done", "lost"}), ('"(agent"', set()),
        ("cpu>80", {"builder"}), ("cpu<=12.5%", {"agent", "theirs"}), ("cpu!=0.4", {"agent", "builder"}),
        ("mem>=512M", {"builder"}), ("memory<0.1GiB", {"agent", "theirs"}), ("pids=3", {"agent"}),
        ("state=exited", {"crashed", "done", "web-1"}), ("status=exited,lost", {"crashed", "done", "web-1", "lost"}),
        ("state!=running", {"crashed", "done", "web-1", "lost"}), ("state~^run", {"agent", "builder", "theirs"}),
        ("age<1h", ALL - {"web-1"}), ("age>90m", {"web-1"}), ("up>=590s", ALL), ("ended<1m", {"done"}),
        ("backend=docker", {"web-1"}), ("host=web1", {"web-1"}), ("host!=web1", ALL - {"web-1"}),
        ("image~rust", {"builder"}), ("image=python:*", {"agent", "crashed", "done", "lost"}),
        ('image="python:*"', set()), ("image!~python", {"builder", "theirs", "web-1"}),
        ("egress=none", {"web-1", "builder"}), ("egress=any", {"agent", "crashed", "done", "lost"}),
        ("egress=*.org", {"agent", "crashed", "done", "lost"}), ("egress>0", {"agent", "crashed", "done", "lost"}),
        ("egress!~acme", {"builder", "theirs", "web-1"}),
        ("restarts>3", {"web-1"}), ("exit!=0", {"crashed", "done"}), ("exit=137", {"crashed"}),
        ("maker=compose", {"theirs"}), ("managed=no", {"theirs"}), ("managed!=no", ALL - {"theirs"}),
        ("oom=yes", {"crashed"}), ("live=yes", {"agent", "builder", "theirs"}),
        ('name~"^web"', {"web-1"}), ("name~^(web|lost)", {"web-1", "lost"}), ("id=999?", {"web-1"}),
        ("secrets>=1", {"builder", "web-1"}), ("label.tier=front", {"web-1"}), ("label:tier!=front", ALL - {"web-1"}),
        ("denied>2", {"agent"}), ("why~memory", {"crashed"}),
        ("cpu>1 state=running !agent", {"builder"}), ("state=exited exit=0 host=web1 -l tier -f wb", {"web-1"}),
    ],
)  # fmt: skip
def test_what_it_finds(text, names):
    assert found(text) == names


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("(", 0, "unterminated subpattern"), ("web a(b", 5, "unterminated"), ("agent *", 6, "nothing to repeat"),
        ("cpuu>80", 0, "did you mean cpu?"), ("state=exited cpu>", 17, "a value is missing here"),
        ("cpu>lots", 4, "'lots' is not a number"), ("x mem>5Q", 6, "not a size"), ("age<soon", 4, "not a duration"),
        ("state=runing", 6, "did you mean running?"), ("state=exited,up", 13, "no state 'up'"),
        ('name~"^web', 5, "not closed"), ("cpu~9", 3, "cpu is a number"), ("image>3", 5, "it is text"),
        ("managed=perhaps", 8, "neither yes nor no"), ("name~[", 5, "unterminated character set"),
        ("zzz=1", 0, "no field 'zzz': there are name"), (r"(a+)\1", 0, "escape"), ("!cpu>x", 5, "not a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_says_where(text, at, said):
    with pytest.raises(FilterError) as told:
        parse_filter(text)
    assert told.value.position == at
    assert said in told.value.message
    assert told.value.code == "filter"


def test_what_is_missing_is_noted_and_what_moves_is_known():
    assert parse_filter("agent -l").note == "-l needs key=value"
    assert parse_filter("cpu>1").moving
    assert parse_filter("age<1h").moving
    assert not parse_filter("state=exited web").moving
    assert not parse_filter("  !  ")


def test_a_field_that_is_only_begun_hides_nothing_yet():
    for text in ("cp", "cpu", "state=exited resta"):
        begun = parse_filter(text)
        assert [one.name for one in begun.select(FLEET, STATE, NOW)] != []
    assert [one.name for one in parse_filter("na").select(FLEET, STATE, NOW)] != [], "no name has it"
    assert not parse_filter("cpu ").select(FLEET, STATE, NOW)
    assert not parse_filter('"cpu"').select(FLEET, STATE, NOW)
    assert not parse_filter("zz").select(FLEET, STATE, NOW)


def test_what_is_kept_of_the_letters_before_changes_nothing_that_is_found():
    narrower = MatchCache()
    for line in ("running bu", "-f bdr cpu>80", "!crashed !-l team", "a.*t$ state=running", "AGENT", '"n:3"', "web"):
        for typed in [*(line[:end] for end in range(len(line) + 1)), line[:-2], f"age<1h {line}", line]:
            if (found := understood(typed)[0]) is not None:
                got = narrower.select(found.parts, FLEET, STATE, NOW, begun=found.begun)
                assert got == found.select(FLEET, STATE, NOW), typed
                assert found.begun or got == [one for one in FLEET if found.matches(one, STATE, NOW)], typed


def test_a_hostile_name_cannot_hold_the_screen_up():
    """Python's own engine takes minutes for each of these."""
    slow = sandbox("1", "a" * 4000 + "!")
    for text in ("(a+)+$", "name~^(a|a)*$", "-f " + "a" * 60 + "z", "name=*a*a*a*a*a*a*a*a*z", "name~(a?){25}a{25}$"):
        assert not parse_filter(text).matches(slow)


def understood(text):
    try:
        return parse_filter(text), None
    except FilterError as error:
        return None, error


_piece = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [*NAMES, "!", "-l", "-f", "=", "!=", ">", "<=", "~", "!~", '"', " ", "label.x=", "80", "512M", "(", "a*"]
    ),
)


@given(st.lists(_piece, max_size=12).map("".join))
def test_whatever_is_typed_is_understood_or_told_where(text):
    parsed, error = understood(text)
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.message
    for one in FLEET if parsed is not None else ():
        assert parsed.matches(one, STATE, NOW) in (True, False)


@given(st.text(min_size=1, max_size=30).filter(lambda text: '"' not in text and "\\" not in text))
def test_what_stands_in_quotes_is_text(text):
    one = sandbox("1", f"x{text}y")
    assert parse_filter(f'"{text}"').matches(one)
