"""The limits on wrong guesses of tokens and passwords. Attempts count when they begin, so many at once are many."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable

MINUTE_S = 60.0
TOKENS = 5
"""Wrong tokens a minute, from everywhere together."""

BY_ADDRESS, BY_NAME, BY_ALL = 5, 20, 60
"""Wrong passwords a minute: for one name from one address, for one name, and altogether."""

_NAMES_MOST = 4096


class _Limit:
    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._taken: OrderedDict[bytes, deque[float]] = OrderedDict()

    def full(self, key: bytes) -> bool:
        taken = self._taken.get(key)
        return taken is not None and len(taken) == self._most and taken[0] > self._clock() - MINUTE_S

    def take(self, key: bytes) -> None:
        self._taken.setdefault(key, deque(maxlen=self._most)).append(self._clock())
        self._taken.move_to_end(key)
        while len(self._taken) > _NAMES_MOST:
            self._taken.popitem(last=False)

    def give_back(self, key: bytes) -> None:
        if taken := self._taken.get(key):
            taken.pop()


class Guesses:
    """Counts guesses, by what was guessed and from where. Times are in seconds of ``clock``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = _Limit(TOKENS, clock)
        self._limits = _Limit(BY_ADDRESS, clock), _Limit(BY_NAME, clock), _Limit(BY_ALL, clock)

    def take_token(self) -> bool:
        """Count a wrong token. Returns False if there were too many, and this one is not to be told from them."""
        if self._tokens.full(b""):
            return False
        self._tokens.take(b"")
        return True

    def take_password(self, name: str, peer: str) -> bool:
        """Count an attempt before it is checked. Returns False if it must not be checked, as there were too many."""
        keys = _keys(name, peer)
        if any(limit.full(key) for limit, key in zip(self._limits, keys, strict=True)):
            return False
        for limit, key in zip(self._limits, keys, strict=True):
            limit.take(key)
        return True

    def was_right(self, name: str, peer: str) -> None:
        """Take back an attempt, because its password was right."""
        for limit, key in zip(self._limits, _keys(name, peer), strict=True):
            limit.give_back(key)


def _keys(name: str, peer: str) -> tuple[bytes, bytes, bytes]:
    return _digest(f"{peer}\0{name}"), _digest(name), b""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
