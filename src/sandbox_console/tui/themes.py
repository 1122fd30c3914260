"""The two looks: quiet slate with one blue, and the same by day."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="sandbox-console",
    dark=True,
    primary="#5ea1e8",
    secondary="#7f8ea3",
    accent="#7fc8d8",
    success="#7bc48f",
    warning="#e0b060",
    error="#e8707a",
    foreground="#d6dbe3",
    background="#12151b",
    surface="#171b22",
    panel="#1f252e",
    variables={
        "dim": "#8b95a5",
        "block-cursor-background": "#2b4a70",
        "footer-key-foreground": "#7fb4ee",
        "footer-background": "#1f252e",
        "input-selection-background": "#5ea1e8 35%",
        "border": "#3a4553",
        "border-blurred": "#2b333e",
    },
)
LIGHT = Theme(
    name="sandbox-console-light",
    dark=False,
    primary="#1f66b3",
    secondary="#5b6878",
    accent="#0f7285",
    success="#1f7a3d",
    warning="#8f5b00",
    error="#b3202c",
    foreground="#1d232b",
    background="#f6f7f9",
    surface="#ffffff",
    panel="#e8ebf0",
    variables={
        "dim": "#657081",
        "block-cursor-background": "#bcd6f2",
        "footer-key-foreground": "#1f66b3",
        "footer-background": "#e8ebf0",
        "border": "#b4bdc9",
        "border-blurred": "#d0d6de",
    },
)
THEMES = (DARK, LIGHT)
