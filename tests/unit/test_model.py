from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sandbox_console.errors import InvalidSpec
from sandbox_console.model import check, hosts, quantities
from sandbox_console.model.spec import SandboxSpec

GOOD = SandboxSpec("box", image="x")


def test_a_plain_spec_has_no_problem():
    assert check.problems(GOOD) == {}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "needed"), ("name", "x" * 64, "64 characters"), ("name", "a b", "letters"), ("name", "-a", "letters"),
        ("name", "a\n", "letters"), ("name", "ſandbox", "letters"), ("name", "a/b", "letters"), ("name", "\u212a", "letters"),
        ("cpus", 0, "above 0"), ("cpus", -1.0, "above 0"), ("cpus", float("nan"), "above 0"), ("cpus", float("inf"), "above 0"),
        ("memory_mib", 0, "above 0"), ("memory_mib", 3, "below 4"), ("pids", -1, "above 0"), ("max_duration_s", 0, "above 0"),
        ("idle_timeout_s", -5, "above 0"), ("workdir", "tmp", "absolute"), ("workspace", "tmp", "absolute"),
        ("workspace", "/", "whole host"), ("workspace", "//", "whole host"), ("workspace", "/tmp/..", "whole host"),
        ("workspace", "/a/../..", "whole host"), ("workspace", "/./", "whole host"),
        ("egress", ("https://a.com",), "scheme"), ("egress", ("a.com/x",), "path"), ("egress", ("a b.com",), "space"),
        ("egress", ("10.0.0.1",), "IP address"), ("egress", ("[::1]:80",), "IP address"), ("egress", ("0x7f.1",), "IP address"),
        ("egress", ("2130706433",), "IP address"), ("egress", ("a.com:0",), "port"), ("egress", ("a.com:99999",), "port"),
        ("egress", ("*",), "host name"), ("egress", ("",), "empty"), ("egress", ("u@a.com",), "user"), ("egress", ("10.0.0.0/8",), "IP address"),
        ("egress", ("a.*.com",), "host name"), ("egress", ("１２７.0.0.1",), "IP address"),
        ("env", {"1A": "x"}, "variable"), ("env", {"A": "\0"}, "NUL"), ("env", {"A=B": "x"}, "variable"), ("labels", {"": "x"}, "label"),
        ("labels", {"sandbox-console.id": "x"}, "keeps for itself"), ("labels", {"a": "\0"}, "NUL"), ("command", ("a\0",), "NUL"),
        ("image", "a\0", "NUL"), ("user", "a\0", "NUL"),
    ],
)  # fmt: skip
def test_each_bad_value_is_told_beside_its_field(field, value, words):
    found = check.problems(structs.replace(GOOD, **{field: value}))
    assert list(found) == [field]
    assert words in found[field]


@given(st.text(max_size=80))
def test_a_name_that_passes_is_plain_ascii(name):
    if not check.name_problem(name):
        assert name.isascii()
        assert 0 < len(name) <= 63
        assert all(letter.isalnum() or letter in "-_." for letter in name)


@pytest.mark.parametrize(
    ("text", "mib"), [("512", 512), ("512M", 512), ("1.5g", 1536), ("2GiB", 2048), ("1024k", 1), ("1T", 1 << 20)]
)
def test_sizes(text, mib):
    assert quantities.parse_size_mib(text) == mib


@pytest.mark.parametrize("text", ["512 apples", "", "-1", "0", "1k", "nan", "5\u212a", "9" * 400])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match=r"size|MiB|large"):
        quantities.parse_size_mib(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_durations(text, seconds):
    assert quantities.parse_duration_s(text) == seconds


@given(st.text(max_size=12))
def test_durations_and_sizes_refuse_with_words_only(text):
    for read in (quantities.parse_duration_s, quantities.parse_size_mib):
        try:
            read(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - most texts are refused, some are not


@pytest.mark.parametrize("text", ["5ſ", "x", "9" * 400 + "d", "-1s"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"duration|long"):
        quantities.parse_duration_s(text)


label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
names = st.lists(label, min_size=1, max_size=4).map(lambda parts: ".".join([*parts, "example"]))


@given(names, st.sampled_from([str.upper, str.title, lambda name: name + ".", str.lower]))
def test_a_pattern_matches_its_host_in_any_spelling(name, spell):
    assert hosts.parse(name).matches(spell(name), 443)
    assert hosts.parse(spell(name)).matches(name, 80)
    assert not hosts.parse(name).matches(name, 8080)
    assert hosts.parse(f"{name}:8080").matches(spell(name), 8080)


@given(names, label)
def test_no_suffix_trick_gets_through(name, extra):
    wild, plain = hosts.parse(f"*.{name}"), hosts.parse(name)
    assert wild.matches(f"{extra}.{name}", 443)
    assert not wild.matches(name, 443)
    for trick in (f"{extra}{name}", f"{name}.{extra}x", f"{name}{extra}x", f"{extra}.{name}.evil.test"):
        assert not wild.matches(trick, 443) or trick.endswith("." + name)
        assert not plain.matches(trick, 443)
    assert not plain.matches(f"{extra}.{name}", 443)


@given(names, names, st.booleans(), st.booleans(), label)
def test_covers_never_promises_more_than_it_matches(a, b, wild_a, wild_b, extra):
    allowed, asked = hosts.parse(("*." if wild_a else "") + a), hosts.parse(("*." if wild_b else "") + b)
    if hosts.covers(allowed, asked):
        for host in (b, f"{extra}.{b}", f"{extra}.{extra}.{b}"):
            assert not asked.matches(host, 443) or allowed.matches(host, 443)


def test_idna_is_matched_in_both_spellings():
    assert hosts.parse("bücher.example").matches("xn--bcher-kva.example", 443)
    assert hosts.parse("xn--bcher-kva.example").matches("BÜCHER.example.", 443)


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_parsed_or_refused_with_words(text, allow_ip):
    try:
        found = hosts.parse(text, allow_ip=allow_ip)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - as above
    else:
        assert found.network is None or allow_ip
        assert found.host.isascii()


@given(st.ip_addresses(), st.integers(1, 65535))
def test_addresses_need_the_opt_in(address, port):
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    with pytest.raises(ValueError, match="IP address"):
        hosts.parse(text)
    assert hosts.parse(text, allow_ip=True).matches(str(address), port)
    assert not hosts.parse("a.example").matches(str(address), 443)


def test_a_spec_survives_its_plain_data():
    spec = SandboxSpec(
        "a", "x", ("sh", "-c", "ü"), {"A": "1"}, cpus=0.5, secrets=("S",), labels={"k": "v"}, limits="best-effort"
    )
    assert SandboxSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"name": "a", "imag": "x"}, "imag", "did you mean 'image'"),
        ({}, "name", "needed"),
        ({"name": "a", "cpus": "two"}, "cpus", "number"),
        ({"name": "a", "cpus": True}, "cpus", "number"),
        ({"name": "a", "memory_mib": 1.5}, "memory_mib", "whole number"),
        ({"name": "a", "command": "sh"}, "command", "list"),
        ({"name": "a", "limits": "lax"}, "limits", "best-effort"),
    ],
)
def test_plain_data_of_the_wrong_shape_is_told_by_field(data, field, words):
    with pytest.raises(InvalidSpec) as caught:
        SandboxSpec.from_dict(data)
    assert words in caught.value.problems[field]
