"""Patterns that a person may not have meant."""

from __future__ import annotations

import pytest

from sandbox_console.model import ports
from sandbox_console.model.egress_advice import advice, notes_on


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["*.com"], ["every host under the public suffix com"]),
        (["*.co.uk", "a.org"], ["public suffix co.uk"]),
        (["*.github.io"], ["public suffix github.io"]),
        (["*.example.com", "api.example.com:443"], ["api.example.com:443 is not needed: *.example.com covers it"]),
        (["a.org", "A.ORG."], ["A.ORG. is in the list twice"]),
        (["10.0.0.0/8", "10.1.0.0/16"], ["10.1.0.0/16 is not needed"]),
        (["*.example.com", "example.com", "github.io", "b.org:8080", "b.org"], []),
        (["https://x/", "*", ""], []),
    ],
)
def test_what_may_be_a_mistake_is_said(patterns, said):
    found = advice(patterns)
    assert len(found) == len(said), found
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


@pytest.mark.timeout(30)  # each compared with each, as before, takes an hour
def test_a_list_of_thousands_is_read_once():
    many = [f"host{number}.example.org" for number in range(10_000)]
    found = notes_on([*many, "*.example.org", "host7.example.org", "host7.example.org:443"])
    assert found[0] == "! not needed: *.example.org covers it"
    assert found[-3].startswith("covers host0.example.org, host1.example.org, ")
    assert found[-3].endswith(" and 9997 more")
    assert found[-2:] == ("! it is in the list twice", "! not needed: host7.example.org covers it")
    assert ports.notes_on([*(f"{number}:80" for number in range(1, 10_000)), "80:1", "0.0.0.0:81:1"])[-2:] == (
        "✕ 127.0.0.1:80 of this host is asked for twice",
        "! other machines can reach it",
    )
