"""The preview beside the form: the equivalent command, and the spec as TOML."""

from __future__ import annotations

import tomli_w
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.tui.base.static_text import put

_LINES = 500
"""The most lines that are shown: all are wrapped again at each key that is typed."""


class FormPreview(VerticalScroll):
    """A read-only preview that follows what is typed."""

    DEFAULT_CSS = """
    FormPreview { width: 2fr; padding: 1 2 0 2; border-left: vkey $panel; display: none; scrollbar-size-vertical: 1; }
    FormPreview Static { height: auto; }
    FormPreview .heading { color: $primary; text-style: bold; }
    FormPreview #preview-command { margin-bottom: 1; }
    """

    def __init__(self) -> None:
        super().__init__(can_focus=False)

    def compose(self) -> ComposeResult:
        yield Static(Content("The same command  (Ctrl+Y copies)"), classes="heading")
        yield Static(id="preview-command", markup=False)
        yield Static(Content("The spec as TOML  (F4 saves)"), classes="heading", id="toml-heading")
        yield Static(id="preview-toml", markup=False)

    def show(self, command: str, spec: SandboxSpec | None) -> None:
        """Show the preview of what is typed. There is no spec if several sandboxes are changed."""
        put(self, "#preview-command", Content(_shown(command, cap=8_000)))
        for heading in self.query("#toml-heading"):  # none while the screen closes
            heading.display = spec is not None
        put(self, "#preview-toml", Content(_shown(toml_of(spec) if spec is not None else "", cap=2_000)))


def _shown(text: str, *, cap: int) -> str:
    """Return the beginning, with at most ``cap`` characters of a line."""
    lines = text.splitlines()
    more = [f"… and {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
    return "\n".join([*(clean(line, cap=cap) for line in lines[:_LINES]), *more])


def toml_of(spec: SandboxSpec) -> str:
    """Return the spec as ``create -f`` reads it."""
    return tomli_w.dumps({name: value for name, value in spec.to_dict().items() if value != ""})
