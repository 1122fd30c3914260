"""Finds the known word that a mistyped one most likely means."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word with the fewest slips from this one, the first of several; empty if none is near.

    A slip is a letter too many, too few, wrong, or two that changed places (the optimal string alignment distance).
    One letter in three may be wrong. Where none is near, the first that begins so.
    """
    from rapidfuzz import process  # 40 ms, for a word that is refused anyway
    from rapidfuzz.distance import OSA

    known = list(known)
    found = process.extractOne(word, known, scorer=OSA.distance, score_cutoff=(len(word) + 2) // 3)
    return found[0] if found else next((one for one in known if word and one.startswith(word)), "")
