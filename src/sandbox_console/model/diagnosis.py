"""What a backend finds when it looks at the machine it works on."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Diagnosis(Struct, frozen=True):
    """One thing looked at: ``what`` in a word or two, how it stands, and the next step where it is not well."""

    what: str
    state: Literal["ok", "warning", "problem"]
    text: str
    hint: str = ""
