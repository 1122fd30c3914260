"""Texts are split into words as Python's shlex does it, whatever is in them."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from sandbox_console.model.shell_words import shell_words


def split_or_problem(split, text):
    try:
        return list(split(text))
    except ValueError as error:
        return str(error)


@given(st.text(st.sampled_from("ab=#$ \t\n\r\\\"'é⏎\u00a0"), max_size=24))
def test_as_shlex_does(text):
    assert split_or_problem(shell_words, text) == split_or_problem(shlex.split, text)


def test_a_long_word_and_many_words():
    long = "x y" * 100_000
    assert shell_words(shlex.join([long, "", 'a"\\b'])) == [long, "", 'a"\\b']
    many = [f"V{index}=it's" for index in range(20_000)]
    assert shell_words(shlex.join(many)) == many
