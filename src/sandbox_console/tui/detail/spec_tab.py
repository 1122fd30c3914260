"""A sandbox's spec beside what is in effect, and what its backend cannot do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.drift import FieldDrift
from sandbox_console.model.sandbox import Fact, Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import ascii_id, clean
from sandbox_console.service import Console
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.text.drift_text import drift_parts
from sandbox_console.tui.text.form_values import shown_value
from sandbox_console.tui.text.formatting import DASH
from sandbox_console.tui.text.port_text import FACT
from sandbox_console.tui.text.wrap import hanging, set_in
from sandbox_console.tui.widgets.table.table_layout import fit_cell

Part = tuple[str, str]
_LABEL, _ASKED = 14, 26
_TOLD = _LABEL + _ASKED + 2
"""The first cell of the column that shows what is in effect."""
_NARROW = _TOLD + 14
"""With fewer cells, as on a phone, what is in effect is below what was asked for."""


class SpecPane(VerticalScroll, can_focus=True):
    """The spec of the selected sandbox."""

    DEFAULT_CSS = (
        "SpecPane { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; } SpecPane > Static { height: auto; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["spec"]

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._shown: Sandbox | None = None
        self._whole: Sandbox | None = None
        self._capabilities: Capabilities | None = None
        self._drift: Sequence[FieldDrift] = ()

    def compose(self) -> ComposeResult:
        yield Static(id="spec-text")

    def show(self, look: TabState) -> None:
        """Show a sandbox's spec."""
        sandbox, active, _ = look
        if not active or sandbox == self._shown:
            return
        self._shown = sandbox
        if sandbox is None:
            self.query_one("#spec-text", Static).update(Content("No sandbox is selected."))
        else:
            self.run_worker(self._fill(sandbox), exclusive=True, group="spec")

    async def _fill(self, sandbox: Sandbox) -> None:
        try:
            capabilities = await self._service.capabilities(sandbox.ref.backend, sandbox.ref.host)
        except ConsoleError:
            capabilities = None
        self._capabilities = capabilities
        self._whole = await whole(self._service, sandbox)
        self._drift = await self._service.drifts.fields(self._whole)
        self._draw(self._whole)

    def _draw(self, sandbox: Sandbox) -> None:
        width = self.scrollable_content_region.width
        put(self, "#spec-text", spec_words(sandbox, self._capabilities, width, self._drift))

    def on_resize(self) -> None:
        if self._whole is not None and self._shown is not None:
            self._draw(self._whole)


async def whole(console: Console, sandbox: Sandbox) -> Sandbox:
    """Return a sandbox with its effective spec, which lists may lack. If it cannot be read, return it unchanged."""
    if sandbox.effective:
        return sandbox
    try:
        return await console.inspect(sandbox.ref)
    except ConsoleError:
        return sandbox


def spec_words(
    sandbox: Sandbox, capabilities: Capabilities | None, width: int = 0, drift: Sequence[FieldDrift] = ()
) -> Content:
    """Return the whole spec as lines, after what differs from it. Rows have ``width`` cells; 0 means no limit."""
    width = width or 10_000
    parts = [*hanging(_identity(sandbox), width, _LABEL), ("\n", "")]
    if differs := list(drift_parts(drift)):
        differs += [("< re-applies the requested spec, > adopts what was found\n\n", "$dim")]
        parts += hanging(differs, width, _LABEL)
    parts += _fields(sandbox, width)
    parts += hanging(_labels(sandbox), width, 4)
    if capabilities is not None:
        parts += hanging(_missing(capabilities), width, 24)
    return Content.assemble(*parts)


def _identity(sandbox: Sandbox) -> Iterator[Part]:
    ref = sandbox.ref
    maker = "this console" if sandbox.managed else clean(sandbox.maker, cap=200) or "others"
    lines = {
        "Name": clean(sandbox.name, cap=200),
        "Id": ascii_id(ref.id),
        "Where": clean(f"{ref.backend} on {ref.host}"),
        "Made by": maker,
    }
    if not sandbox.managed:
        lines["Made by"] += "  ◇ not made by this console: a change asks you to type its id"
    if sandbox.pid is not None:
        lines["Main process"] = f"pid {sandbox.pid}"
    if sandbox.restarts:
        lines["Restarts"] = str(sandbox.restarts)
    for label, value in lines.items():
        yield fit_cell(label, _LABEL, "left"), "$dim"
        yield f"{value}\n", ""


def _fields(sandbox: Sandbox, width: int) -> Iterator[Part]:
    columns = "ASKED\n" if width < _NARROW else fit_cell("ASKED", _ASKED, "left") + "  EFFECTIVE\n"
    yield " " * _LABEL + columns, "bold $dim"
    if width < _NARROW:
        yield f"{' ' * _LABEL}→ EFFECTIVE\n", "bold $dim"
    facts = {fact.field: fact for fact in sandbox.effective}
    requested = _asked(sandbox.spec) if sandbox.spec else {}
    names = dict.fromkeys(_ports_together([*requested, *facts]))
    for name in names:
        yield from _field(name, requested.get(name, ""), facts.get(name), width)
    if not names:
        yield "The backend does not report its spec.\n", "$dim"


def _ports_together(names: list[str]) -> list[str]:
    """Move the place of each port below the requested ports."""
    at = names.index("ports") + 1 if "ports" in names else len(names)
    facts = [name for name in names if name.startswith(FACT)]
    return [*names[:at], *facts, *names[at:]]


def _asked(spec: SandboxSpec) -> dict[str, str]:
    """Return every requested field. An empty egress and unset limits are included, as they have a meaning too."""
    always = {"image", "cpus", "memory_mib", "egress"}
    found = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name in ("name", "labels", "limits") or (not value and name not in always):
            continue
        empty = "deny all" if name == "egress" else DASH
        found[name] = shown_value(name, value) if value else empty
    return found


def _field(name: str, requested: str, fact: Fact | None, width: int) -> Iterator[Part]:
    """Yield a field. A value too long to stand beside the effective one has its own lines, as has a long name."""
    if width < _NARROW:
        yield from _narrow_field(name, requested, fact, width)
        return
    room = max(_LABEL, cell_len(name) + 1) if requested else _TOLD - 2
    label = fit_cell(clean(name), room, "left"), "$dim"
    effect = [*_told(fact), ("\n", "")] if fact is not None else [("\n", "")]
    if cell_len(requested) <= min(_ASKED, _TOLD - room) and "\n" not in requested:
        yield from hanging([label, (fit_cell(clean(requested), _TOLD - room, "left"), ""), *effect], width, _TOLD)
        return
    yield from hanging([label, (f"{set_in(requested, _LABEL)}\n", "")], width, _LABEL)
    if fact is not None and fact.value != _unquoted(requested):
        yield from hanging([(" " * _TOLD, ""), *effect], width, _TOLD)


def _narrow_field(name: str, requested: str, fact: Fact | None, width: int) -> Iterator[Part]:
    label = fit_cell(clean(name), max(_LABEL, cell_len(name) + 1), "left"), "$dim"
    if requested:
        yield from hanging([label, (f"{set_in(requested, _LABEL)}\n", "")], width, _LABEL)
    if fact is not None:
        lead = (" " * _LABEL, "") if requested else label
        yield from hanging([lead, ("→ ", "$dim"), *_told(fact, _LABEL + 2), ("\n", "")], width, _LABEL + 2)


def _told(fact: Fact, at: int = _TOLD) -> Iterator[Part]:
    yield set_in(fact.value, at), "" if fact.enforced else "$text-warning"
    if not fact.enforced:
        yield "  ⚠ not enforced", "bold $text-warning"
    if fact.note:
        yield f"  {clean(fact.note)}", "$dim"


def _unquoted(words: str) -> str:
    """Return a command as backends report it: its words without quotes."""
    try:
        return " ".join(shlex.split(words))
    except ValueError:
        return words


def _labels(sandbox: Sandbox) -> Iterator[Part]:
    if sandbox.labels:
        yield "\nLabels\n", "bold $dim"
    for key, value in sorted(sandbox.labels.items()):
        yield f"  {clean(key, cap=200)}", "$text-accent"
        yield f" = {clean(value, cap=400)}\n", ""


def _missing(capabilities: Capabilities) -> Iterator[Part]:
    missing = [capability for capability in Capability if not capabilities.has(capability)]
    if missing:
        yield "\nUnsupported by this backend here\n", "bold $dim"
    for capability in missing:
        yield "  " + fit_cell(str(capability), 20, "left"), "$text-warning"
        yield f"  {clean(capabilities.reason(capability), cap=300)}\n", "$dim"
