"""Patterns: in linear time whatever they are, turned round by a sign, refused with the cause."""

from __future__ import annotations

import pytest

from sandbox_console.errors import UsageError
from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogRecord, Stream


def store_of(*lines):
    store = LineStore()
    store.append([LogRecord(at, Stream.STDOUT, line) for at, line in enumerate(lines)])
    return store


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){25}b", "([a-z]+)*=\\d"])
def test_a_catastrophic_pattern_ends(pattern):
    """With ``re`` each of these takes minutes or more on such a line."""
    store = store_of(*[b"a" * 5000 + b"!\n"] * 40)
    index = LineIndex(store, compile_pattern(pattern))
    index.update()
    assert index.complete


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "(?=x)", r"(a)\1", "(a{999}){999}"])
def test_what_cannot_be_is_refused_with_its_cause_and_a_next_step(pattern):
    with pytest.raises(UsageError) as found:
        compile_pattern(pattern)
    assert repr(pattern) in found.value.message
    assert found.value.hint


def test_case_counts_once_there_is_a_capital():
    assert compile_pattern("error").matches(b"an ERROR\n")
    assert not compile_pattern("Error").matches(b"an ERROR\n")


def test_a_sign_turns_a_filter_round():
    store = store_of(b"keep\n", b"noise 1\n", b"keep too\n", b"noise 2\n")
    index = LineIndex(store, compile_pattern("!noise", invertible=True))
    index.update()
    assert list(index.lines) == [0, 2]
    store.append([LogRecord(9, Stream.STDOUT, b"noise\n"), LogRecord(9, Stream.STDOUT, b"more\n")])
    index.update()
    assert list(index.lines) == [0, 2, 5]


def test_a_match_never_crosses_a_line():
    index = LineIndex(store_of(b"ab\n", b"q\n", b"xq\n"), compile_pattern(r"[^x]q|b\sq"))
    index.update()
    assert list(index.lines) == []


def test_a_quotation_without_its_end_is_searched_as_it_stands():
    index = LineIndex(store_of(b"a(b a(b\n", b"ab\n"), compile_pattern(r"\Qa(b"))
    index.update()
    assert list(index.lines) == [0]


def test_bytes_that_are_no_text_do_not_hide_a_match():
    index = LineIndex(store_of(b"\xff\xfe needle \x80\n"), compile_pattern("needle"))
    index.update()
    assert list(index.lines) == [0]
