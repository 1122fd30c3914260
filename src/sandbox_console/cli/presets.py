"""``egress presets``: lists of hosts that are often needed, and where each was learnt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.service import find_paths, known_ground
from sandbox_console.service.presets import OfferedPreset, load_presets, this_machine


async def presets(context: Context) -> int:
    """List all of them, or print the hosts of the named ones, one per line."""
    offered = await asyncio.to_thread(_offered, context)
    named = [_named(offered, name) for name in context.args.presets]
    if context.json:
        for preset in named or offered:
            context.record(_data(preset))
    elif named:
        for host in dict.fromkeys(host for preset in named for host in preset.hosts):
            context.text(host)
    else:
        rows = ((one.name, " ".join(one.hosts) or "-", one.problem or one.source) for one in offered)
        context.table(("PRESET", "HOSTS", "SOURCE"), rows)
    return context.code


def _offered(context: Context) -> Sequence[OfferedPreset]:
    config_file = Path(context.args.config) if context.args.config else None
    machine = this_machine(known_ground(config_file), context.args.image or "")
    offered, problem = load_presets(find_paths(config_file).config_file, machine)
    if problem:
        context.say(f"warning: your own presets are not used: {problem}")
    return offered


def _named(offered: Sequence[OfferedPreset], name: str) -> OfferedPreset:
    """The preset of a name. Raises NotFound; Unsupported for one whose hosts are not known."""
    preset = next((one for one in offered if one.name == name), None)
    if preset is None:
        raise NotFound(f"there is no preset {name}", hint="see: sandbox-console egress presets")
    if preset.problem:
        raise Unsupported(f"the hosts of {name} are {preset.problem}", hint=preset.hint)
    return preset


def _data(preset: OfferedPreset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "hosts": list(preset.hosts),
        "source": preset.source,
        "problem": preset.problem,
        "hint": preset.hint,
    }
