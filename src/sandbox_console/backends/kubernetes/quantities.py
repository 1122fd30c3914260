"""Quantities of Kubernetes, such as ``500m`` CPUs or ``64Mi`` of memory."""

from __future__ import annotations

_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
          "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}  # fmt: skip
_MIB = 2**20


def number(text: str | float) -> float | None:
    """A quantity as a number; None if it is none."""
    if isinstance(text, (int, float)):
        return float(text)
    unit = next((unit for unit in (text[-2:], text[-1:]) if unit in _UNITS), "")
    try:
        return float(text.removesuffix(unit)) * _UNITS.get(unit, 1)
    except ValueError:
        return None


def mib(text: str | float) -> float | None:
    """A quantity of bytes in MiB."""
    found = number(text)
    return None if found is None else found / _MIB
