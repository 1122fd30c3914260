"""Patterns that a person may not have meant."""

from __future__ import annotations

import pytest

from sandbox_console.model.egress_advice import advice


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
