"""Published ports: how they are written, what is refused and in which words, and those of a copy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_console.model import check
from sandbox_console.model.ports import PublishedPort, freed, parse, parse_all
from sandbox_console.model.spec import SandboxSpec


@pytest.mark.parametrize(
    ("text", "address", "host_port", "port"),
    [
        ("80", "127.0.0.1", 0, 80),
        ("8080:80", "127.0.0.1", 8080, 80),
        ("8080:80/tcp", "127.0.0.1", 8080, 80),
        (":80", "127.0.0.1", 0, 80),
        ("127.0.0.2::80", "127.0.0.2", 0, 80),
        ("0.0.0.0:8080:80", "0.0.0.0", 8080, 80),
        ("[::1]:8080:80", "::1", 8080, 80),
        ("[0:0::1]::65535", "::1", 0, 65535),
    ],
)
def test_what_a_port_means(text, address, host_port, port):
    found = parse(text)
    assert found == PublishedPort(address, host_port, port)
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a port"), ("x", "'x' is not a port"), ("0", "'0' is not a port"), ("65536", "not a port"),
        ("x:80", "'x' is not a port"), ("80:", "'' is not a port"), ("8080:80/udp", "only TCP"), ("http://x:80", "is no"), ("-1:80", "'-1'"),
        ("127.0.0.1:80", "'127.0.0.1' is not a port"), ("acme.org:8080:80", "'acme.org' is not an address"),
        ("::1:8080:80", "is no port"), ("[127.0.0.1]:8080:80", "is not an address"), ("[fe80::1%eth0]:1:2", "address"),
        ("1:2:3:4", "no port"), ("٨٠", "not a port"), (" 80", "' 80' is not a port"), ("8080:80\n", "not a port"),
    ],
)  # fmt: skip
def test_what_is_no_port_says_what_to_write(text, said):
    with pytest.raises(ValueError, match=said) as told:
        parse(text)
    assert "write 8080:80" in str(told.value) or said == "only TCP"


@given(st.text("0123456789:.[]/tcp %a", max_size=20))
def test_whatever_is_written_is_read_or_refused_in_words(text):
    try:
        assert parse(str(parse(text))) == parse(text)
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017 - most texts are refused, some are not


def test_only_this_host_reaches_a_loopback_address():
    reached = {text: parse(f"{text}:1:2").loopback for text in ("127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0", "[::]")}
    assert [text for text, alone in reached.items() if alone] == ["127.0.0.1", "127.9.9.9", "[::1]"]
    assert not parse("192.168.0.9:1:2").loopback


def test_two_cannot_have_one_place_and_any_number_may_have_a_free_one():
    assert len(parse_all(("80", "80", "81", "127.0.0.2:8080:1", "8080:1"))) == 5
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:8080 of this host is asked for twice"):
        parse_all(("8080:80", "127.0.0.1:8080:81"))
    spec = SandboxSpec("x", ports=("8080:80", "8080:81"))
    assert check.problems(spec) == {"ports": "127.0.0.1:8080 of this host is asked for twice"}
    assert SandboxSpec.from_dict(SandboxSpec("x", ports=("8080:80",)).to_dict()).ports == ("8080:80",)


def test_a_copy_keeps_its_ports_and_addresses_and_takes_free_places():
    assert freed(("8080:80", "0.0.0.0:443:443", "22")) == ("127.0.0.1::80", "0.0.0.0::443", "127.0.0.1::22")
