"""The text of an empty list, which always says why nothing is shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.content import Content

from sandbox_console.model.text import clean
from sandbox_console.tui.fleet.arrangement import ListOptions
from sandbox_console.tui.fleet.header import backend_name, dead_line
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.state.fleet_state import FleetState

KeyOf = Callable[[str], str]
"""Returns the key of an action, as `keymap.key_of` does."""


_usual: KeyOf = partial(key_of, None)


def empty_words(state: FleetState, options: ListOptions, *, read_only: bool = False, key: KeyOf = _usual) -> Content:
    """Return why the list is empty and what to do next, or an empty text if it is not empty."""
    if state.sandboxes:
        return _hidden(len(state.sandboxes), options, key)
    if state.connecting and not state.dead:
        names = ", ".join(backend_name(backend_health) for backend_health in state.health.values()) or "the backends"
        return Content.assemble((f"Asking {names}…", "$dim"))
    if not any(health.ok for health in state.health.values()):
        reasons = "\n".join(dead_line(health) for health in state.health.values())
        tells = [(key("backends"), "bold $primary"), (" shows the full reason, and so does ", "$dim")]
        return Content.assemble(
            ("No backend answers, so what is running is not known.\n\n", "bold $text-error"), (reasons, ""),
            ("\n\n", ""), *(tells if key("backends") else [("For the full reason, run ", "$dim")]),
            ("sandbox-console doctor", "$text-accent"),
        )  # fmt: skip
    return _none_yet(state, read_only, key("create"))


def _hidden(count: int, options: ListOptions, key: KeyOf) -> Content:
    ways = [(key("faults"), "shows what is well too")] if options.faults else []
    ways += [(key("managed"), "shows what others made too")] if options.managed else []
    ways += [(key("back"), "clears the filter")] if options.shown else []
    parts = [("Nothing matches ", ""), (clean(options.shown.text, cap=60), "bold")] if options.shown else []
    if not parts:
        parts = [("Nothing is wrong." if options.faults else "None was made by this console.", "bold")]
    parts.append((f"\n{count} hidden.\n", "$dim"))
    for name, effect in ways:
        parts += [("\n", ""), (name, "bold $primary"), (f" {effect}", "$dim")] if name else []
    return Content.assemble(*parts)


def _none_yet(state: FleetState, read_only: bool, key: str) -> Content:
    parts: list[tuple[str, str]] = [("No sandboxes", "bold")]
    if state.dead:
        parts = [("No sandboxes on the backends that answer", "bold")]
        parts.append(
            (f"\nWhat {', '.join(backend_name(health) for health in state.dead)} holds is not known.", "$text-error")
        )
    if read_only:
        return Content.assemble(*parts, ("\nThe console is read-only: none can be made here.", "$dim"))
    press = [("Press ", "$dim"), (key, "bold $primary"), (" to create one, or run\n", "$dim")]
    return Content.assemble(
        *parts, ("\n\n", ""), *(press if key else [("Create one with\n", "$dim")]),
        ("sandbox-console create NAME --image IMAGE", "$text-accent"),
    )  # fmt: skip
