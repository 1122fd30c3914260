"""Labels: those that Kubernetes takes, and those that a selector asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def fitting(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of the labels that Kubernetes takes."""
    return {key: value for key, value in labels.items() if _KEY.fullmatch(key) and _VALUE.fullmatch(value)}


def pairs_of(selector: str) -> dict[str, str] | None:
    """The labels that fit a selector of ``KEY=VALUE`` parts; None if it is of another kind."""
    found = {}
    for part in selector.split(","):
        key, equal, value = part.replace("==", "=").partition("=")
        key, value = key.strip(), value.strip()
        if not equal or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            return None
        found[key] = value
    return found
