"""Views of several sandboxes: their merged logs, or a comparison of two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import ascii_id, clean
from sandbox_console.service import Console
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.logs.merged_logs import Group
from sandbox_console.tui.main.detail_actions import DetailActions
from sandbox_console.tui.text.form_values import shown_value
from sandbox_console.tui.text.formatting import DASH, sandbox_host, shown_name, status_reason
from sandbox_console.tui.widgets.table.table_layout import fit_cell

Part = tuple[str, str]
_LABEL, _SIDE, _LEAST_SIDE = 14, 40, 16


async def merge_logs(screen: DetailActions, fleet: Sequence[Sandbox], marked: Sequence[Sandbox]) -> None:
    """Show the marked sandboxes' logs by time, or those with a label if none are marked. If already shown, go back."""
    pane = screen.query_one(LogsPane)
    if pane.merged:
        pane.unmerge()
        return
    group = Group(marked, f"{len(marked)} marked")
    if len(marked) < 2:
        text = await screen.app.push_screen_wait(
            AskScreen("Logs of several sandboxes by time", "label as key=value, key, or * for all running ones")
        )
        if not text:
            return
        group = labelled(fleet, text)
    if not group.sandboxes:
        screen.notify(f"No sandbox has the label {text}.", severity="warning")
        return
    screen.action_tab("logs")
    pane.merge(group)


def labelled(fleet: Sequence[Sandbox], text: str) -> Group:
    """Return the sandboxes with a label (``key`` or ``key=value``), now and later. ``*`` means all running ones."""
    key, equals, value = text.strip().partition("=")

    def wanted(sandbox: Sandbox) -> bool:
        if key == "*":
            return sandbox.status is Status.RUNNING
        return key in sandbox.labels and (not equals or sandbox.labels[key] == value)

    label = "all running ones" if key == "*" else f"-l {clean(text, cap=80)}"
    return Group([one for one in fleet if wanted(one)], label, wanted)


def compare(screen: DetailActions, marked: Sequence[Sandbox], selected: Sandbox | None) -> None:
    """Compare the two marked sandboxes, or this one with the one that the previous press of the key chose."""
    pair = list(marked)[:2]
    if len(pair) < 2:
        first = screen.compared
        if selected is None:
            screen.notify("No sandbox is selected.", severity="warning")
            return
        if first is None or first.ref == selected.ref:
            screen.compared = selected
            again = key_of(screen, "compare") or "do this"
            screen.notify(f"{shown_name(selected)} is one side. Choose another and press {again} again.")
            return
        pair = [screen.state.sandboxes.get(first.ref, first), selected]  # its current state, or its last one
    screen.compared = None
    screen.run_worker(_compare(screen, *pair), group="compare", exclusive=True)


async def _compare(screen: DetailActions, left: Sandbox, right: Sandbox) -> None:
    left, right = await asyncio.gather(*(_whole(screen.service, sandbox) for sandbox in (left, right)))
    screen.app.push_screen(TextScreen("Compare", lambda width: compare_words(left, right, width)))


async def _whole(console: Console, sandbox: Sandbox) -> Sandbox:
    """Return a sandbox with its effective spec, which lists may lack. One that is gone is returned unchanged."""
    try:
        return await console.inspect(sandbox.ref)
    except ConsoleError:
        return sandbox


def compare_words(left: Sandbox, right: Sandbox, width: int = 0) -> Content:
    """Return the differences first, then what is equal. The two sides share ``width`` cells."""
    side = max(_LEAST_SIDE, (width - _LABEL - 2) // 2) if width else _SIDE
    rows = list(_rows(left, right))
    differ = [row for row in rows if row[1] != row[2]]
    same = [row for row in rows if row[1] == row[2] and row[1] != DASH]
    parts: list[Part] = [(fit_cell("", _LABEL, "left"), ""), *_heads(left, right, side)]
    parts += [(f"\nDiffers ({len(differ)})\n", "bold $text-warning")]
    parts += [part for row in differ for part in _beside(*row, side)]
    parts += [(f"\nThe same ({len(same)})\n", "bold $dim")]
    parts += [(fit_cell(name, _LABEL, "left") + f"{value}\n", "$dim") for name, value, _ in same]
    return Content.assemble(*parts)


def _heads(left: Sandbox, right: Sandbox, side: int) -> list[Part]:
    names = [f"{shown_name(sandbox)} {ascii_id(sandbox.ref.id)[:8]}" for sandbox in (left, right)]
    return [
        (fit_cell(names[0], side, "left") + "  ", "bold $primary"),
        (f"{fit_cell(names[1], side, 'left')}\n", "bold $primary"),
    ]


def _beside(name: str, left: str, right: str, side: int) -> Iterator[Part]:
    yield fit_cell(name, _LABEL, "left"), "bold"
    if len(left) <= side and len(right) <= side:
        yield fit_cell(left, side, "left") + "  ", ""
        yield f"{right}\n", ""
    else:
        yield f"{left}\n{' ' * _LABEL}", ""
        yield f"{right}\n", "$text-accent"


def _rows(left: Sandbox, right: Sandbox) -> Iterator[tuple[str, str, str]]:
    found = [_facts(sandbox) for sandbox in (left, right)]
    for name in dict.fromkeys([*found[0], *found[1]]):
        yield name, found[0].get(name, DASH), found[1].get(name, DASH)


def _facts(sandbox: Sandbox) -> dict[str, str]:
    facts = {
        "state": str(sandbox.status),
        "exit": status_reason(sandbox) or DASH,
        "where": sandbox_host(sandbox),
        "image": clean(sandbox.image),
    }
    if sandbox.spec is not None:
        facts |= {
            f"{key}": clean(shown_value(key, value)) for key, value in sandbox.spec.to_dict().items() if key != "name"
        }
    for fact in sandbox.effective:
        words = clean(fact.value) + ("" if fact.enforced else "  ⚠ not enforced")
        facts[f"→ {clean(fact.field, cap=40)}"] = words
    facts |= {f"label {clean(key, cap=40)}": clean(value, cap=200) for key, value in sandbox.labels.items()}
    return facts
