"""A variable's value as it is shown: passwords are masked, and a long value of a guest's takes no time worth noting."""

from __future__ import annotations

import pytest

from sandbox_console.model.secret import shown_value

LONG = 1_000_000


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("DB", "postgres://u:sesame@db.example/x", "postgres://u:***@db.example/x"),
        ("DB", "a postgres+tls://u:p@h and x://v:q@i", "a postgres+tls://u:***@h and x://v:***@i"),
        ("API_KEY", "sesame", "***"),
        ("MODE", "http://u@h:80/x", "http://u@h:80/x"),
    ],
)
def test_a_password_is_masked(name: str, value: str, shown: str) -> None:
    assert shown_value(name, value) == shown


@pytest.mark.timeout(30)  # with a pattern that begins anew at each letter, the first of these took half an hour
@pytest.mark.parametrize("value", ["x" * LONG, "a://b:" * (LONG // 6), "a:" * (LONG // 2), "/" * LONG], ids=len)
def test_a_long_value_is_read_once(value: str) -> None:
    assert shown_value("A", value) == value
