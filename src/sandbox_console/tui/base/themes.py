"""The themes: dark slate with one blue, its light counterpart, high contrast, and one without colours."""

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
        "scrollbar": "#3a4553",
        "scrollbar-hover": "#5ea1e8",
        "scrollbar-active": "#5ea1e8",
        "scrollbar-background": "#171b22",
        "scrollbar-background-hover": "#171b22",
        "scrollbar-background-active": "#171b22",
        "scrollbar-corner-color": "#171b22",
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
        "dim": "#5a6575",
        "block-cursor-background": "#bcd6f2",
        "footer-key-foreground": "#1f66b3",
        "footer-background": "#e8ebf0",
        "border": "#b4bdc9",
        "border-blurred": "#d0d6de",
        "scrollbar": "#b4bdc9",
        "scrollbar-hover": "#1f66b3",
        "scrollbar-active": "#1f66b3",
        "scrollbar-background": "#e8ebf0",
        "scrollbar-background-hover": "#e8ebf0",
        "scrollbar-background-active": "#e8ebf0",
        "scrollbar-corner-color": "#e8ebf0",
    },
)
CONTRAST = Theme(
    name="sandbox-console-contrast",
    dark=True,
    primary="#66d9ff",
    secondary="#ffffff",
    accent="#5fffff",
    success="#5fff5f",
    warning="#ffff5f",
    error="#ff8f8f",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    variables={
        "dim": "#d0d0d0",
        "text-muted": "#d0d0d0",
        "block-cursor-background": "#0050d0",
        "block-cursor-foreground": "#ffffff",
        "footer-key-foreground": "#66d9ff",
        "footer-background": "#1c1c1c",
        "input-selection-background": "#0050d0",
        "border": "#ffffff",
        "border-blurred": "#d0d0d0",
    },
)
"""Text has a contrast of at least 7:1 to its background (WCAG 2.2, 1.4.6)."""
MONOCHROME = Theme(
    name="sandbox-console-monochrome",
    dark=True,
    primary="#ffffff",
    secondary="#c0c0c0",
    accent="#ffffff",
    success="#ffffff",
    warning="#ffffff",
    error="#ffffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#202020",
    variables={
        "dim": "#b0b0b0",
        "text-muted": "#c0c0c0",
        "text-success": "#ffffff",
        "text-warning": "#ffffff",
        "text-error": "#ffffff",
        "text-accent": "#ffffff",
        "block-cursor-background": "#606060",
        "footer-key-foreground": "#ffffff",
        "footer-background": "#202020",
        "border": "#c0c0c0",
        "border-blurred": "#808080",
    },
)
THEMES = (DARK, LIGHT, CONTRAST, MONOCHROME)


def after(name: str) -> Theme:
    """Return the next theme. After a third-party theme, this is the first one."""
    names = [theme.name for theme in THEMES]
    return THEMES[(names.index(name) + 1) % len(THEMES)] if name in names else THEMES[0]
