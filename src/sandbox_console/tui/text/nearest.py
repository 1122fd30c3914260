"""What was meant: the known word that a typing slip leads to."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word with the fewest slips from this one, the first of several; empty where none is near.

    A slip is a letter too many, too few, wrong, or two that changed places (the optimal string alignment distance).
    Half of the letters may be wrong. Where none is near, the first that begins so.
    """
    known = list(known)
    most = (len(word) + 1) // 2
    near = [(slips(word, one), at, one) for at, one in enumerate(known) if abs(len(one) - len(word)) <= most]
    found = min(near, default=(most + 1, 0, ""))
    return found[2] if found[0] <= most else next((one for one in known if word and one.startswith(word)), "")


def slips(word: str, other: str) -> int:
    """How many slips lead from one word to the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word):
        older, before, row = before, row, [i + 1]
        for j, wanted in enumerate(other):
            least = min(before[j] + (letter != wanted), before[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and word[i - 1] == wanted:
                least = min(least, older[j - 1] + 1)
            row.append(least)
    return row[-1]
