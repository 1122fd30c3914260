"""Repairs colours of hostile text that cannot be distinguished from their background."""

from __future__ import annotations

from functools import lru_cache

Rgb = tuple[int, int, int]

LEAST = 1.6
"""The contrast below which text counts as hidden. Faint greys of editors have 1.7 and more, and stay as they are."""
ENOUGH = 3.0
"""The contrast that hidden text gets: what WCAG 2.1 asks of large text (1.4.3)."""
_STEPS = 8


def luminance(colour: Rgb) -> float:
    """Return the relative luminance, from 0 to 1, as WCAG 2.1 defines it."""
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def contrast(one: Rgb, other: Rgb) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as WCAG 2.1 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@lru_cache(maxsize=4096)
def readable(ink: Rgb, background: Rgb) -> Rgb:
    """Return the colour of a text on a background, moved towards black or white only if it is hidden."""
    if contrast(ink, background) >= LEAST:
        return ink
    goal = max(((0, 0, 0), (255, 255, 255)), key=lambda end: contrast(end, background))
    for step in range(1, _STEPS + 1):
        red, green, blue = (part + (end - part) * step // _STEPS for part, end in zip(ink, goal, strict=True))
        if contrast((red, green, blue), background) >= ENOUGH:
            return red, green, blue
    return goal
