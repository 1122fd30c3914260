"""The bad values of each field that is typed, with the words that the form shows beside it."""

from __future__ import annotations

import pytest

from sandbox_console.model import check
from sandbox_console.model.spec_fields import FIELDS
from sandbox_console.tui.text.form_values import parse, two_valued

BAD = {
    "name": [("", "a name is needed"), ("bad name!", "use letters, digits"), ("x" * 64, "63 are the most")],
    "image": [("a\0b", "a NUL byte is in it")],
    "command": [("sh 'open", "quotes must be closed"), ("sh a\0b", "a NUL byte cannot be run")],
    "labels": [
        ("team", "'team' has no '='; write key=value"),
        ("-x=1", "'-x' is not a label's name"),
        ("sandbox-console.x=1", "which the console keeps for itself"),
        ("a=b 'c", "quotes must be closed"),
    ],
    "cpus": [("two", "'two' is not a number; write 0.5 or 2"), ("0", "0 is not above 0"), ("-1", "not above 0"),
             ("nan", "nan is not above 0"), ("inf", "inf is not above 0")],
    "memory_mib": [("512 apples", "is not a size"), ("3M", "3 MiB is below 4"), ("-5M", "is not a size")],
    "pids": [("1.5", "'1.5' is not a number of processes; write 100"), ("0", "0 is not above 0")],
    "egress": [
        ("https://x.io/y", "has a scheme; write only the host, as in 'x.io'"),
        ("a.org 10.0.0.1", "is an IP address"),
        ("x.org:99999", "a port that is not a number from 1 to 65535"),
        ("x.org/y", "has a path"),
        ("me@x.org", "has a user in it"),
        ("-.org", "is not a host name"),
    ],
    "ports": [("80x", "'80x' is not a port from 1 to 65535|'80x' is no port"), ("80/udp", "only TCP ports"),
              ("8080:80 8080:81", "is asked for twice"), ("nowhere:80:80", "is not an address|is no port")],
    "workspace": [("relative", "'relative' is not an absolute path"), ("/", "would give the sandbox this whole host"),
                  ("/srv/\udcff", "its name is not UTF-8")],
    "workdir": [("relative", "'relative' is not an absolute path")],
    "user": [("a\0b", "a NUL byte is in it")],
    "env": [("A", "'A' has no '='; write key=value"), ("1A=x", "'1A' is not a variable's name"), ("A='b", "quotes must be")],
    "max_duration_s": [("soon", "'soon' is not a"), ("0s", "0 is not above 0")],
    "idle_timeout_s": [("soon", "'soon' is not a"), ("0s", "0 is not above 0")],
}  # fmt: skip
NONE = {"secrets": "a name that is not defined is listed, and refused by the console", "runtime": "the engine decides"}


def test_every_field_that_is_typed_is_in_the_table():
    assert BAD.keys() | NONE.keys() == {field.name for field in FIELDS if not two_valued(field)}


@pytest.mark.parametrize(("name", "text", "words"), [(name, *one) for name, found in BAD.items() for one in found])
def test_a_bad_value_is_told_in_its_own_words(name, text, words):
    spec, problems = parse({"name": "web", "image": "x"} | {name: text})
    told = {**check.problems(spec), **problems}
    assert any(one in told[name] for one in words.split("|")), told
    assert told.keys() == {name}
