"""Names that look like others are told apart: by a warning where alphabets are mixed, by the ASCII id always."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import sandbox

from sandbox_console.tui.text.formatting import mixes_scripts, shown_name

ID = "0123456789abcdef"


@pytest.mark.parametrize(
    "name", ["р\u0430yments", "\u0430dmin", "pay\u03bfut", "\u0501ocker", "ѕcope", "a\u13aa", "web\u0531"]
)
def test_mixed_alphabets_are_flagged(name):
    assert mixes_scripts(name)
    assert shown_name(sandbox(ID, name)) == f"⚠ {name} (0123456789ab)"


@pytest.mark.parametrize(
    "name", ["платежи", "café", "naïve-2", "東京", "データ処理", "서울 web", "api東京", "αβγ", "١٢٣"]
)
def test_one_language_is_not_flagged_but_has_its_id(name):
    assert not mixes_scripts(name)
    assert shown_name(sandbox(ID, name)) == f"{name} (0123456789ab)"


def test_a_whole_word_of_another_alphabet_still_shows_its_id():
    assert shown_name(sandbox(ID, "\u0440\u0430\u0443\u0440\u0430\u04cf")).endswith("(0123456789ab)")


@pytest.mark.parametrize("name", ["agent", "a-b_c.1", "UPPER"])
def test_plain_names_stay_plain(name):
    assert shown_name(sandbox(ID, name)) == name


def test_an_id_cannot_imitate_either():
    assert shown_name(sandbox("\u0430bc\u202e", "x\u200b")) == "x<U+200B> (\\u0430bc\\u20)"
