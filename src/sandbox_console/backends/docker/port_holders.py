"""Finds out who holds a port of the engine's host that a sandbox needs: a container, or an unneeded gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.labels import EGRESS, GATEWAY, is_gateway
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.backends.docker.translate import seconds
from sandbox_console.errors import NotFound
from sandbox_console.model.ports import PublishedPort

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_IDLE_S = 120.0
_LIVE = ("running", "paused", "restarting")


async def holder(engine: Engine, published: PublishedPort) -> tuple[str, str]:
    """The holder's name, and the token of its gateway if that is idle. Both are empty if it is not a container."""
    for row in await engine.call("GET", "containers/json"):
        if any(_overlaps(bound, published) for bound in row.get("Ports") or ()):
            labels = row.get("Labels") or {}
            return await _behind(engine, row, labels[GATEWAY]) if is_gateway(_name(row), labels) else (_name(row), "")
    return "", ""


async def _behind(engine: Engine, gateway: Mapping[str, Any], token: str) -> tuple[str, str]:
    """A sandbox that ended by itself leaves its gateway behind; so does a console killed while starting one."""
    filters = json.dumps({"label": [f"{EGRESS}={token}"]})
    rows = await engine.call("GET", "containers/json", params={"all": 1, "filters": filters})
    if not rows:
        return "a sandbox that was removed", token
    try:
        idle = rows[0].get("State") not in _LIVE and await _left(engine, rows[0]["Id"], gateway["Id"])
    except NotFound:
        idle = False
    return _name(rows[0]), token if idle else ""


async def _left(engine: Engine, sandbox: str, gateway: str) -> bool:
    """Whether the gateway is older than the sandbox's end, and not part of a start that is under way."""
    ended = seconds((await engine.call("GET", container_path(sandbox, "json")))["State"].get("FinishedAt"))
    began = seconds((await engine.call("GET", container_path(gateway, "json")))["State"].get("StartedAt"))
    return began is None or time.time() - began > _IDLE_S or (ended is not None and began < ended)


def _overlaps(bound: Mapping[str, Any], published: PublishedPort) -> bool:
    every = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
    same = published.address in every or bound.get("IP", "") in (published.address, *every)
    return same and bound.get("PublicPort") == published.host_port and bound.get("Type") == "tcp"


def _name(row: Mapping[str, Any]) -> str:
    return next((str(name).lstrip("/") for name in row.get("Names") or ()), str(row["Id"])[:12])
