from __future__ import annotations

import ipaddress
import os

import pytest

from sandbox_console.egress import records, rule_files
from sandbox_console.egress.addresses import is_global
from sandbox_console.egress.decide import address_verdict, verdict
from sandbox_console.egress.host_addresses import ready_words
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.model.egress_rules import LIVE, listed_anew


def allow(*patterns, until=None):
    return tuple(EgressRule(one, until=until) for one in patterns)


def deny(*patterns):
    return tuple(EgressRule(one, Effect.DENY) for one in patterns)


@pytest.mark.parametrize(
    ("rules", "host", "port", "reason", "rule"),
    [
        (allow("api.acme.org"), "API.acme.org.", 443, "", "api.acme.org"),
        (allow("api.acme.org"), "api.acme.org", 22, "not_allowed", ""),
        (allow("api.acme.org:22"), "api.acme.org", 22, "", "api.acme.org:22"),
        (allow("api.acme.org"), "api.acme.org.evil.net", 443, "not_allowed", ""),
        (allow("api.acme.org"), "xapi.acme.org", 443, "not_allowed", ""),
        (allow("*.acme.org"), "acme.org", 443, "not_allowed", ""),
        (allow("*.acme.org"), "a.b.acme.org", 80, "", "*.acme.org"),
        (allow("*.acme.org") + deny("b.acme.org"), "b.acme.org", 443, "denied", "b.acme.org"),
        (allow("*.acme.org:8443") + deny("b.acme.org"), "b.acme.org", 8443, "denied", "b.acme.org"),
        (allow("*.acme.org") + deny("b.acme.org:80"), "b.acme.org", 443, "", "*.acme.org"),
        (allow("10.0.0.0/8"), "10.1.2.3", 443, "", "10.0.0.0/8"),
        (allow("10.0.0.0/8"), "10.1.2.3", 22, "not_allowed", ""),
        (allow("10.0.0.0/8:22"), "10.1.2.3", 22, "", "10.0.0.0/8:22"),
        (allow("[fd00::/8]:5432"), "[fd00::1]", 5432, "", "[fd00::/8]:5432"),
        (allow("127.0.0.1"), "2130706433", 80, "not_allowed", ""),
        (allow("127.0.0.1"), "0x7f.0.0.1", 80, "not_allowed", ""),
        (allow("127.0.0.1"), "127.1", 80, "not_allowed", ""),
        (allow("acme.org"), "acme.org:443", 443, "bad_host", ""),
        (allow("acme.org"), "acme org", 443, "bad_host", ""),
        (allow("acme.org"), "fe80::1%eth0", 443, "bad_host", ""),
        ((), "acme.org", 443, "not_allowed", ""),
    ],
)  # fmt: skip
def test_what_decides(rules, host, port, reason, rule):
    found = verdict(rules, host, port)
    assert (found.allowed, found.reason, found.rule) == (not reason, reason, rule)


LIVE_ALLOW = EgressRule("live.acme.org", source=LIVE)
LIVE_HOUR = EgressRule("a.acme.org", until=9e12, source=LIVE)
LIVE_DENY = EgressRule("b.acme.org", Effect.DENY, source=LIVE)


@pytest.mark.parametrize(
    ("rules", "old", "new", "after"),
    [
        (allow("a.org", "b.org"), ["a.org", "b.org"], ["b.org", "c.org"], allow("b.org", "c.org")),
        (allow("a.org"), ["a.org"], ["A.org:443", "c.org"], allow("A.org:443", "c.org")),
        ((*allow("a.org"), LIVE_ALLOW, LIVE_DENY), ["a.org"], ["b.acme.org"],
         (LIVE_ALLOW, LIVE_DENY, *allow("b.acme.org"))),
        ((*allow("a.acme.org"), LIVE_HOUR), ["a.acme.org"], ["z.org"], (LIVE_HOUR, *allow("z.org"))),
        ((LIVE_HOUR,), ["z.org"], ["z.org", "a.acme.org"], (LIVE_HOUR, *allow("a.acme.org"))),
        (allow("a.org"), ["a.org", "taken.org"], ["a.org", "taken.org", "c.org"], allow("a.org", "c.org")),
        ((LIVE_ALLOW,), ["live.acme.org"], ["c.org"], allow("c.org")),
        ((LIVE_ALLOW,), ["c.org"], ["c.org", "live.acme.org"], (LIVE_ALLOW,)),
        (allow("half.org", "a.org"), ["a.org"], ["a.org", "new.org"], allow("a.org", "new.org")),
    ],
)  # fmt: skip
def test_a_changed_list_keeps_what_was_decided_live(rules, old, new, after):
    """A denial, an hour and a taken rule stay; what leaves the list goes, and so does what a kill left half done."""
    assert listed_anew(rules, old, new) == tuple(after)


def test_a_near_miss_is_told():
    assert "ports 80 and 443 only" in verdict(allow("acme.org"), "acme.org", 22).hint
    assert "not acme.org itself" in verdict(allow("*.acme.org"), "acme.org", 443).hint


def test_a_timed_rule_ends():
    rules = allow("acme.org", until=100.0)
    assert verdict(rules, "acme.org", 443, now=99.9).allowed
    assert not verdict(rules, "acme.org", 443, now=100.0).allowed
    assert rule_files.next_expiry(rules, 5.0) == 100.0
    assert rule_files.next_expiry(rules, 100.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "0.0.0.0", "10.0.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.64.0.1", "192.0.0.8",
        "198.18.0.1", "203.0.113.9", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fe80::1", "fd00::1",
        "ff02::1", "2001:db8::1", "2001::1", "100::1", "::127.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public(text):
    address = ipaddress.ip_address(text)
    assert not is_global(address)
    assert address_verdict(allow("acme.org"), address, 443).reason == "not_global"


@pytest.mark.parametrize("text", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_a_public_address(text):
    assert address_verdict((), ipaddress.ip_address(text), 443).allowed


def test_addresses_and_rules_that_name_them():
    inner = ipaddress.ip_address("10.1.2.3")
    assert address_verdict(allow("10.0.0.0/8"), inner, 443).rule == "10.0.0.0/8"
    assert not address_verdict(allow("10.0.0.0/8"), inner, 5432).allowed
    assert address_verdict(allow("10.0.0.0/8"), ipaddress.ip_address("::ffff:10.1.2.3"), 443).allowed
    public = ipaddress.ip_address("1.1.1.1")
    assert address_verdict(deny("1.1.1.0/24"), public, 443).reason == "denied"
    assert address_verdict(deny("1.1.1.0/24"), ipaddress.ip_address("::ffff:1.1.1.1"), 22).reason == "denied"
    assert address_verdict((), public, 443, own=True).reason == "not_global"


def test_a_policy_is_read_back_as_it_was_saved(tmp_path):
    rules = allow("acme.org") + deny("b.acme.org") + (EgressRule("c.org:22", until=12.5, source="live"),)
    made = rule_files.Policy("box", rules, {"db": ("10.0.0.1", "::1")})
    rule_files.save(tmp_path, made)
    assert rule_files.load(tmp_path) == made


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version":1,"sandbox":"a","hosts":{},"rules":[1]}']
)
def test_a_damaged_policy_is_an_error(tmp_path, text):
    (tmp_path / rule_files.FILE).write_text(text)
    with pytest.raises(ValueError):
        rule_files.load(tmp_path)


def test_a_hosts_file():
    text = "10.0.0.1 a.acme.org B.acme.org # two\n::1 a.acme.org\n\n# none\n"
    assert rule_files.parse_hosts(text) == {"a.acme.org": ("10.0.0.1", "::1"), "b.acme.org": ("10.0.0.1",)}


def record(number, **more):
    return EgressRecord(float(number), "box", f"h{number}.acme.org", 443, False, "not_allowed", **more)


def test_records_are_followed_across_rotations_and_stay_bounded(tmp_path):
    out, follower = records.Recorder(tmp_path, size=2000, keep=3), records.Follower(tmp_path, keep=3)
    seen = []
    for number in range(200):
        out.write(record(number))
        if number % 5 == 0:
            seen += follower.poll()
    seen += follower.poll()
    assert [one.at for one in seen] == [float(number) for number in range(200)]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * 2000
    kept = list(records.read(tmp_path))
    assert kept == seen[-len(kept) :]
    assert len(kept) > 20
    assert [one.at for one in records.read(tmp_path, since=198.0)] == [198.0, 199.0]
    out.close()


def test_a_follower_that_slept_through_rotations_reads_all_that_is_kept(tmp_path):
    out, follower = records.Recorder(tmp_path, size=1000, keep=3), records.Follower(tmp_path, keep=3)
    out.write(record(0))
    assert len(follower.poll()) == 1
    for number in range(1, 300):
        out.write(record(number))
    assert follower.poll() == list(records.read(tmp_path))
    out.close()


def test_what_a_killed_writer_left_is_passed_over(tmp_path):
    (tmp_path / records.FILE).write_text('{"at": 1.0, "sandbox": "box", "ho')
    out = records.Recorder(tmp_path)
    out.write(record(2))
    out.close()
    (tmp_path / records.path_of(tmp_path, 1)).write_text('[1]\n{"at": "x"}\nnull\n{"at": 1, "extra": 2}\n')
    assert [one.at for one in records.read(tmp_path)] == [2.0]


def test_a_record_that_cannot_be_written_is_counted(tmp_path):
    out = records.Recorder(tmp_path / "missing")
    out.write(record(1))
    assert out.lost == 1


@pytest.mark.parametrize("at", ["1e400", "-1e400", "NaN", "-1", "1e12", str(10**400)])
def test_a_time_that_is_none_is_no_record(at):
    """A gateway that was taken over writes what it likes; a screen that shows a time must not end by it."""
    assert records.parse_record(b'{"at": 1, "sandbox": "a", "host": "b", "port": 1, "allowed": true}') is not None
    assert (
        records.parse_record(b'{"at": %s, "sandbox": "a", "host": "b", "port": 1, "allowed": true}' % at.encode())
        is None
    )


@pytest.mark.parametrize("what", ["fifo", "folder", "link", "long"])
def test_what_a_gateway_plants_among_its_records_is_passed_over(tmp_path, what):
    for name in ("ready", records.path_of(tmp_path, 0).name):
        path = tmp_path / name
        if what == "fifo":
            os.mkfifo(path)
        elif what == "folder":
            path.mkdir()
        elif what == "link":
            (tmp_path / "theirs").write_text('{"at": 1, "sandbox": "a", "host": "b", "port": 1, "allowed": true}\nheld')
            path.symlink_to(tmp_path / "theirs")
        else:
            with path.open("wb") as file:
                file.truncate(1 << 40)
    if what != "long":
        assert records.Follower(tmp_path).poll() == []
        assert ready_words(tmp_path) == ()
    assert len("".join(ready_words(tmp_path))) <= 64
