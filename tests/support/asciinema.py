"""asciinema-player out of npm."""

from __future__ import annotations

from pathlib import Path

from tests.support import npm

VERSION = "3.18.0"
_FOLDER = npm.folder("asciinema", VERSION)


def bundle() -> Path:
    """Where its script and its style are."""
    return _FOLDER / "node_modules/asciinema-player/dist/bundle"


def install() -> str:
    """See that it is there; why it cannot be had, or empty."""
    return npm.install(_FOLDER, "--ignore-scripts", f"asciinema-player@{VERSION}")
