"""What a slip was meant to be is the same word wherever it is told."""

from __future__ import annotations

import pytest

from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.tui.fleet.columns import BY_KEY, column_key


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("xr", ["rx", "tx"], "rx"),
        ("cup", ["cpu", "up"], "cpu"),
        ("hsot", ["image", "host"], "host"),
        ("exitd", ["exit", "exited"], "exit"),
        ("eg", ["image", "egress"], "egress"),
        ("frobnicate", ["create", "fork"], ""),
        ("", ["create"], ""),
        ("x", [], ""),
    ],
)
def test_the_word_with_the_fewest_slips_is_meant(word, known, meant):
    assert nearest(word, known) == meant


def test_lists_columns_and_the_command_line_mean_the_same():
    assert nearest("cup", BY_KEY) == "cpu"
    with pytest.raises(UsageError, match="did you mean cpu"):
        column_key("cup")
