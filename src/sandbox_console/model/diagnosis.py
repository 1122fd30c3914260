"""What a backend finds when it looks at the machine it works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing looked at: ``what`` in a word or two, how it stands, and the next step where it is not well."""

    what: str
    state: Literal["ok", "warning", "problem"]
    text: str
    hint: str = ""
