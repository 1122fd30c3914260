"""Finds the known word that a mistyped one most likely stands for."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word with the fewest typing errors from this one (the first of several); empty if none is near.

    A typing error is an extra, missing or wrong letter, or two swapped ones (the optimal string alignment distance).
    One letter in three may be wrong. If no word is near, it is the first one that begins with ``word``.
    """
    from rapidfuzz import process  # takes 40 ms, and only an unknown word needs it
    from rapidfuzz.distance import OSA

    known = list(known)
    found = process.extractOne(word, known, scorer=OSA.distance, score_cutoff=(len(word) + 2) // 3)
    return found[0] if found else next((one for one in known if word and one.startswith(word)), "")
