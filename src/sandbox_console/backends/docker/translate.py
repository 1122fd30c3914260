"""Translates the engine's description of a container into the console's model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from sandbox_console.backends.common.installation import ANOTHER
from sandbox_console.backends.docker import drift
from sandbox_console.backends.docker.enforcement import command, facts
from sandbox_console.backends.docker.labels import MANAGED, SPEC, is_anothers
from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

DEFAULT_PIDS = drift.DEFAULT_PIDS
MIB = 1024 * 1024

_STATUS = {
    "created": Status.CREATED,
    "running": Status.RUNNING,
    "paused": Status.PAUSED,
    "restarting": Status.STARTING,
    "removing": Status.STOPPING,
    "exited": Status.EXITED,
    "dead": Status.LOST,
}
_EXITED = re.compile(r"Exited \((\d+)\)")
_UNHEALTHY = "(unhealthy)"  # the end of a status such as "Up 5 minutes (unhealthy)"
_RESTARTING = "it ends and the engine starts it again"
# Labels that tools put on their containers. The first one that is found names the maker.
_MAKERS = (
    ("devcontainer.local_folder", "devcontainer"),
    ("devcontainer.config_file", "devcontainer"),
    ("org.testcontainers", "testcontainers"),
    ("com.docker.compose.service", "compose"),
    ("opensandbox.io/id", "OpenSandbox"),
    ("opensandbox.io/egress-sidecar-for", "OpenSandbox"),
    ("io.kubernetes.pod.name", "kubernetes"),
    ("com.docker.swarm.service.name", "swarm"),
)
_PROJECTS = (("inspect-", "Inspect"),)
_NAMES = (("openhands-runtime-", "OpenHands"), ("openhands-agent-server-", "OpenHands"), ("buildx_buildkit_", "buildx"))
_COMMANDS = (("swerex-remote", "SWE-ReX"),)  # it sets no label and names containers after the image


def from_summary(context: str, data: Mapping[str, Any], *, ours: str = "", backend: str = "docker") -> Sandbox:
    """A container from the engine's list, with what it reports without an inspect.

    ``ours`` is the id of this installation.
    """
    labels = data.get("Labels") or {}
    name = _listed_name(data)
    spec = None if is_anothers(labels, ours) else _spec(labels, name)
    state = str(data.get("State", ""))
    code = _EXITED.match(str(data.get("Status", "")))
    return Sandbox(
        ref=SandboxRef(backend, context, data["Id"]),
        name=name,
        status=_STATUS.get(state, Status.UNKNOWN),
        image=str(data.get("Image", "")),
        created_at=float(data["Created"]) if data.get("Created") else None,
        exit=_exit(int(code[1]), None, "") if code and state == "exited" else None,
        labels=_shown(labels, spec),
        managed=spec is not None,
        maker="" if spec else maker(name, str(data.get("Command", "")), labels, ours),
        spec=spec,
        detail=_listed_detail(state, str(data.get("Status", ""))),
    )


def from_inspect(
    context: str, data: Mapping[str, Any], info: Mapping[str, Any], *,
    image: Mapping[str, Any] | None = None, oom_at: float | None = None, published: Sequence[Fact] = (),
    lives: Sequence[Fact] = (), end_reason: str = "", ours: str = "", backend: str = "docker",
    asked: SandboxSpec | None = None, rules: Any = (),
) -> Sandbox:  # fmt: skip
    """A container as inspected, with the facts about it.

    ``image`` is its image as inspected, ``oom_at`` the time of an OOM kill according to an event, ``published`` and
    ``lives`` are facts about ports and time limits, ``end_reason`` is why its keeper ended it, ``ours`` this
    installation. ``asked`` is the spec that it was last given, if its labels no longer have it, and ``rules`` are its
    egress rules.
    """
    state, config = data["State"], data["Config"]
    labels, name = config.get("Labels") or {}, str(data["Name"]).lstrip("/")
    made = None if is_anothers(labels, ours) else _spec(labels)
    spec = made and (asked or made)
    status, oom = _inspected_status(state), _out_of_memory(state, oom_at)
    ended = status in (Status.EXITED, Status.FAILED, Status.LOST)
    return Sandbox(
        ref=SandboxRef(backend, context, data["Id"]),
        name=name,
        status=status,
        image=str(config.get("Image", "")),
        created_at=seconds(data.get("Created")),
        started_at=seconds(state.get("StartedAt")),
        finished_at=seconds(state.get("FinishedAt")) if ended else None,
        exit=_exit(state.get("ExitCode"), oom, state.get("Error", "") or end_reason) if ended else None,
        labels=_shown(labels, spec),
        managed=spec is not None,
        maker="" if spec else maker(name, " ".join(command(config)), labels, ours),
        spec=spec,
        effective=facts(data, info, spec, image or {}, published, lives),
        found=drift.found(data, info, spec, rules) if spec else {},
        untold=drift.UNTOLD if spec else {},
        pid=state.get("Pid") or None,
        restarts=data.get("RestartCount"),
        detail=_detail(state, oom=oom),
    )


def _out_of_memory(state: Mapping[str, Any], oom_at: float | None) -> bool:
    """Whether the engine, or an event since the last start, says that the kernel killed one of its processes."""
    started = seconds(state.get("StartedAt"))
    return bool(state.get("OOMKilled")) or (oom_at is not None and started is not None and oom_at >= started)


def spec_of(data: Mapping[str, Any]) -> SandboxSpec | None:
    """The spec that an inspected container was requested with; None if it is not ours."""
    return _spec(data["Config"].get("Labels") or {}, str(data["Name"]).lstrip("/"))


def maker(name: str, command: str, labels: Mapping[str, str], ours: str = "") -> str:
    """Who made a container that is not ours, as far as its labels, name or command show."""
    if is_anothers(labels, ours):
        return ANOTHER
    if project := labels.get("com.docker.compose.project"):
        return next((who for prefix, who in _PROJECTS if project.startswith(prefix)), f"compose:{project}")
    known = (who for label, who in _MAKERS if label in labels)
    by_name = (who for prefix, who in _NAMES if name.startswith(prefix))
    by_command = (who for part, who in _COMMANDS if part in command)
    return next((who for found in (known, by_name, by_command) for who in found), "")


def seconds(text: str | None) -> float | None:
    """A time in RFC 3339, with nanoseconds, as seconds since the epoch; None for the engine's "never" (year 1)."""
    if not text or text.startswith("0001-"):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
    except ValueError:
        return None


def _listed_name(data: Mapping[str, Any]) -> str:
    # A container that others link to is also listed with the links' names, which have a second slash.
    names = [name.removeprefix("/") for name in data.get("Names") or ()]
    return next((name for name in names if "/" not in name), str(data["Id"])[:12])


def _spec(labels: Mapping[str, str], name: str = "") -> SandboxSpec | None:
    """The spec of the labels, with the name that the container has now if that is given."""
    if labels.get(MANAGED) != "1":
        return None
    try:
        spec = SandboxSpec.from_dict(json.loads(labels.get(SPEC, "")))
        return structs.replace(spec, name=name) if name else spec
    except (ValueError, TypeError, ConsoleError):
        return None


def _shown(labels: Mapping[str, str], spec: SandboxSpec | None) -> dict[str, str]:
    """Its own labels, without the image's, which the engine adds and which could claim an owner."""
    if spec is not None:
        return dict(spec.labels)
    return {key: value for key, value in labels.items() if not key.startswith("sandbox-console.")}


def _inspected_status(state: Mapping[str, Any]) -> Status:
    status = _STATUS.get(str(state.get("Status")), Status.UNKNOWN)
    return Status.FAILED if status is Status.CREATED and state.get("Error") else status


def _exit(code: int | None, oom: bool | None, error: str) -> Exit:
    signal = code - 128 if code is not None and 128 < code <= 128 + 64 else None
    # 137 alone is any SIGKILL; only the engine's flag and event prove that memory ran out, and a child's OOM kill
    # leaves them too, however the main process ends.
    detail = "" if not oom else "out of memory" if signal == 9 else "a process of it was killed for lack of memory"
    return Exit(code=code, signal=signal, oom=oom, reason=detail or error)


def _listed_detail(state: str, detail: str) -> str:
    if state == "restarting":
        return _RESTARTING
    return "unhealthy" if detail.endswith(_UNHEALTHY) else ""


def _detail(state: Mapping[str, Any], *, oom: bool) -> str:
    if state.get("Error"):
        return str(state["Error"])
    if state.get("Status") == "restarting":
        return _RESTARTING
    health = (state.get("Health") or {}).get("Status")
    if health == "unhealthy":
        return "unhealthy"
    return "a process in it was killed for lack of memory" if oom and state.get("Running") else ""
