"""What holds for every name, port, ClientHello and request, not only for the ones that somebody thought of."""

from __future__ import annotations

import ipaddress
import ssl
import string
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sandbox_console.egress import client_hello, request
from sandbox_console.egress.addresses import is_global, plain
from sandbox_console.egress.decide import named, verdict
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.hosts import DEFAULT_PORTS, covers, normalise, parse

EDGE = string.ascii_lowercase + string.digits
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
TLD = st.from_regex(r"[a-z]{2,6}", fullmatch=True)
NAME = st.builds(lambda labels, tld: ".".join([*labels, tld]), st.lists(LABEL, min_size=1, max_size=4), TLD)
PORT = st.integers(1, 65535)
settings.register_profile("egress", deadline=None)
settings.load_profile("egress")


def shouted(name: str, mask: int) -> str:
    return "".join(c.upper() if mask >> (at % 60) & 1 else c for at, c in enumerate(name))


@given(NAME, st.integers(0, 2**60 - 1), st.booleans(), st.sampled_from(sorted(DEFAULT_PORTS)))
def test_case_and_one_trailing_dot_change_nothing(name, mask, dot, port):
    spelled = shouted(name, mask) + ("." if dot else "")
    assert normalise(spelled) == name
    assert verdict([EgressRule(name)], spelled, port).allowed
    assert verdict([EgressRule(spelled)], name, port).allowed
    assert not verdict([EgressRule(name)], name + "..", port).allowed


@given(NAME, NAME, PORT)
def test_only_the_name_itself_is_allowed(name, other, port):
    assume(name != other)
    assert not verdict([EgressRule(f"{name}:{port}")], other, port).allowed
    for trick in (f"{name}.{other}", f"x{name}", f"{name}x", f"{other}.{name}", f"{name}@{other}", f"{name}/{other}",
                  f"{name}\0.{other}", f"{name} ", f" {name}", f"{name}%2e", f"{name}:{port}", f"{name},{other}"):  # fmt: skip
        assert trick == name or not verdict([EgressRule(f"{name}:{port}")], trick, port).allowed, trick


@given(NAME, st.lists(LABEL, min_size=1, max_size=3), NAME)
def test_a_wildcard_is_every_name_below_and_never_the_apex(name, below, other):
    rule = [EgressRule(f"*.{name}")]
    assert verdict(rule, ".".join([*below, name]), 443).allowed
    assert not verdict(rule, name, 443).allowed
    assert not verdict(rule, f"x{name}", 443).allowed
    assert verdict(rule, f"a.{name}.{other}", 443).allowed == f"a.{name}.{other}".endswith(f".{name}")
    assert verdict(rule, other, 443).allowed == other.endswith(f".{name}")


@given(NAME, PORT, PORT)
def test_a_port_is_that_port_alone(name, port, other):
    assert verdict([EgressRule(f"{name}:{port}")], name, port).allowed
    assert verdict([EgressRule(f"{name}:{port}")], name, other).allowed == (port == other)
    assert verdict([EgressRule(name)], name, other).allowed == (other in DEFAULT_PORTS)


@given(NAME, PORT, st.lists(NAME, max_size=3))
def test_a_deny_without_a_port_wins_over_every_allow_on_every_port(name, port, others):
    rules = [EgressRule(f"{name}:{port}"), EgressRule(name), *map(EgressRule, others), EgressRule(name, Effect.DENY)]
    found = verdict(rules, name, port)
    assert (found.allowed, found.reason, found.rule) == (False, "denied", name)


@given(NAME, PORT, st.floats(0, 2e9), st.floats(0, 2e9))
def test_a_rule_that_ran_out_is_as_none(name, port, until, now):
    rules = [EgressRule(f"{name}:{port}", until=until)]
    assert verdict(rules, name, port, now).allowed == (now < until)


@given(st.text(max_size=40), PORT)
@example("xn--", 443)
@example("a" * 300, 443)
@example("\u3002", 443)
def test_any_text_has_a_verdict_and_none_is_allowed_by_another_name(text, port):
    found = verdict([EgressRule("allowed.example.com:*"), EgressRule("allowed.example.com")], text, port)
    assert found.allowed == (named(text) == "allowed.example.com" and port in DEFAULT_PORTS)


@pytest.mark.parametrize(
    ("written", "asked"),
    [("bücher.example", "xn--bcher-kva.example"), ("BÜCHER.example", "XN--BCHER-KVA.example."), ("日本。example", "xn--wgv71a.example")],
)  # fmt: skip
def test_international_names_are_their_ascii_form(written, asked):
    assert verdict([EgressRule(written)], asked, 443).allowed
    assert verdict([EgressRule(asked)], written, 443).allowed


@pytest.mark.parametrize("text", ["faß.example", "ẞ.example", "\u200dx.example", "a\u200cb.example", "σας.example"])
def test_letters_that_idna_versions_read_differently_are_refused(text):
    with pytest.raises(ValueError, match="xn--"):
        parse(text)


@pytest.mark.parametrize("text", ["googlе.com", "раураl.com", "ɡoogle.com", "google。com.evil.net"])
def test_a_homoglyph_is_another_name(text):
    rules = [EgressRule("google.com"), EgressRule("paypal.com")]
    assert not verdict(rules, text, 443).allowed


@given(st.ip_addresses(v=4), PORT)
def test_an_address_is_never_allowed_by_a_name(address, port):
    rules = [EgressRule("*.com"), EgressRule("example.com")]
    for text in (str(address), str(int(address)), hex(int(address)), f"[::ffff:{address}]", f"{address}."):
        assert not verdict(rules, text, port).allowed


@given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4))
def test_a_network_is_its_addresses(base, length, other):
    network = ipaddress.ip_network((base, length), strict=False)
    assert verdict([EgressRule(str(network))], str(other), 443).allowed == (other in network)
    assert verdict([EgressRule(f"{network}:22")], str(other), 22).allowed == (other in network)


@given(st.ip_addresses(v=4))
def test_an_address_in_ipv6_clothes_is_judged_as_what_it_is(address):
    for text in (f"::ffff:{address}", f"64:ff9b::{address}"):
        dressed = ipaddress.ip_address(text)
        assert plain(dressed) == address
        assert is_global(dressed) == is_global(address)
    assert not (is_global(address) and address.is_private and not address.is_global)


@given(NAME, NAME)
def test_what_covers_allows_all_that_is_covered(one, other):
    for wide in (one, f"*.{one}"):
        for narrow in (other, f"*.{other}", f"a.{one}"):
            if covers(parse(wide), parse(narrow)):
                assert verdict([EgressRule(wide)], narrow.replace("*", "x"), 443).allowed


@cache
def hello_bytes(name: str | None) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    made = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


@given(
    st.sampled_from(["a.b", "good.example.com", f"{'x' * 60}.example.com"]),
    st.lists(st.integers(1, 60), max_size=15),
    st.lists(st.floats(0, 1, exclude_max=True), max_size=5),
)
def test_a_hello_is_read_however_it_is_cut(name, sizes, ends):
    body, records = hello_bytes(name)[5:], b""
    for size in [*sizes, len(body)]:
        piece, body = body[:size], body[size:]
        if piece:
            records += b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece
    assert client_hello.server_name(records) == name
    for end in ends:
        assert client_hello.server_name(records[: int(end * len(records))]) is None
    assert client_hello.server_name(records + b"\x16\x03\x03") == name  # what follows is not the hello's


@settings(max_examples=300)
@given(st.integers(0, 600), st.integers(0, 255), st.booleans())
def test_a_changed_hello_names_no_other_host(at, value, cut):
    whole = bytearray(hello_bytes("good.example.com"))
    at %= len(whole)
    whole[at] = value
    try:
        name = client_hello.server_name(bytes(whole[:at] if cut else whole))
    except client_hello.NotTLS:
        return
    where = hello_bytes("good.example.com").find(b"good.example.com")
    if name and name != "good.example.com":  # the byte was one of the name's own
        assert where <= at < where + 16


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hello_or_not_tls_or_too_few(data):
    with suppress(client_hello.NotTLS):
        assert client_hello.server_name(data) in (None, "")


def test_a_hello_without_a_name():
    assert client_hello.server_name(hello_bytes(None)) == ""


@settings(max_examples=300)
@given(st.binary(max_size=120), st.binary(max_size=60))
@example(b"CONNECT good.example.com:443 HTTP/1.1", b"")
@example(b"GET http://good.example.com/ HTTP/1.1", b"Host: good.example.com")
def test_any_head_is_a_request_or_a_bad_one(line, field):
    try:
        found = request.parse(line + b"\r\n" + field + b"\r\n\r\n")
    except request.BadRequest:
        return
    assert found.query is not None or named(found.host) == found.host
    again = found.head() if found.query is None and found.method != "CONNECT" else b""
    assert again.count(b"\r\n\r\n") <= 1
    assert b"\n" not in again.replace(b"\r\n", b"")


HEADER = st.tuples(st.from_regex(rb"[A-Za-z-]{1,12}", fullmatch=True), st.from_regex(rb"[ -~]{0,30}", fullmatch=True))


@given(NAME, PORT, st.lists(HEADER, max_size=6), st.binary(max_size=20))
def test_what_is_passed_on_says_each_thing_once(name, port, headers, path):
    target = f"http://{name}:{port}/".encode() + path.hex().encode()
    lines = [b"GET " + target + b" HTTP/1.1", f"Host: {name}:{port}".encode(), *(k + b": " + v for k, v in headers)]
    try:
        found = request.parse(b"\r\n".join([*lines, b"", b""]))
    except request.BadRequest:
        return
    names = [line.partition(b":")[0].lower() for line in found.head().split(b"\r\n")[1:-2]]
    for once in (b"host", b"connection"):
        assert names.count(once) == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert not {b"upgrade", b"proxy-connection", b"te", b"keep-alive"} & set(names)
