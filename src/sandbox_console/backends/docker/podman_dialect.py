"""What Podman's service does in another way than an engine of Docker's, although it speaks the same API.

Seen on Podman 4.3.1, which reports API 1.41.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sandbox_console.model.capability import Capability

NO_GATEWAY = (
    "Podman gives the bridge of an internal network an address of its host, which a sandbox behind an egress gateway "
    "would reach"
)
NAME_TAKEN = "is already in use"
"""What a create is refused with, as a failure of its own (500), where the name is taken."""

MISSING = {
    Capability.UPDATE_CPU: "Podman 4.3 cannot change a limit over this API; the sandbox is recreated",
    Capability.UPDATE_MEMORY: "Podman 4.3 cannot change a limit over this API; the sandbox is recreated",
    Capability.UPDATE_PIDS: "Podman 4.3 cannot change a limit over this API; the sandbox is recreated",
    Capability.PROCESSES: "Podman 4.3 joins the columns of its list of processes; run ps inside",
    Capability.EVENTS: "Podman 4.3 sends past events late over this API; use podman events",
}
"""What Podman lacks over Docker's API, with the reasons."""

NOT_RUNNING = "container state improper"
"""What a request is refused with, as a failure of its own (500), that needs a running container."""

NO_INIT = "container-init binary not found"
"""What a create with an init is refused with where catatonit is not installed."""


LOG_SIZE = "30m"

_DEFAULT_CAPABILITIES = frozenset(
    {"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID"}
)
"""What every Podman gives by default; it lists what was dropped of its default, not ``ALL``."""

_PROCESSES = 16384
"""Well above the pids that a sandbox may have, which are limited by its cgroup."""


def is_podman(info: Mapping[str, Any]) -> bool:
    """Whether an answer to /info is Podman's, which has the version of Podman's builder."""
    return "BuildahVersion" in info


def stable(info: Mapping[str, Any]) -> dict[str, Any]:
    """Podman's /info with an ID that stays: its own is another one in each answer.

    The ID is made from the machine's name and the folder with the containers.
    """
    identity = f"{info.get('Name', '')}:{info.get('DockerRootDir', '')}"
    return {**info, "ID": hashlib.sha256(identity.encode()).hexdigest()[:32]}


def adapt(body: dict[str, Any]) -> None:
    """Change a request to create a container into what Podman accepts.

    Its log driver begins its file again at the limit, and it has no limit for the number of files of a tmpfs. Unless
    ``nproc`` is named beside other limits, it asks for 4,194,304, which a Podman inside a container may not have.
    """
    host = body["HostConfig"]
    host["LogConfig"] = {"Type": "k8s-file", "Config": {"max-size": LOG_SIZE}}
    host["Ulimits"].append({"Name": "nproc", "Soft": _PROCESSES, "Hard": _PROCESSES})
    host["Tmpfs"] = {path: _without_inodes(options) for path, options in host["Tmpfs"].items()}


def in_dockers_words(data: dict[str, Any]) -> dict[str, Any]:
    """An inspected container as Docker's engine would describe it: walls, limits, log and runtime by the same names."""
    host, state = data["HostConfig"], data["State"]
    if {str(one).removeprefix("CAP_") for one in host.get("CapDrop") or ()} >= _DEFAULT_CAPABILITIES:
        host["CapDrop"] = ["ALL"]
    for limit in host.get("Ulimits") or ():
        limit["Name"] = str(limit["Name"]).removeprefix("RLIMIT_").lower()
    if not (state.get("Health") or {}).get("Status"):
        state.pop("Health", None)
    if (host.get("LogConfig") or {}).get("Type") == "json-file":  # what it says of its own driver
        host["LogConfig"] = {"Type": "k8s-file", "Config": {"max-size": LOG_SIZE}}
    host["Runtime"] = "" if host.get("Runtime") == "oci" else host.get("Runtime")
    return data


def action(name: str) -> str:
    """An event's action by Docker's name: a removal is ``remove`` to Podman and ``destroy`` to Docker."""
    return "destroy" if name == "remove" else name


def _without_inodes(options: str) -> str:
    return ",".join(one for one in options.split(",") if not one.startswith("nr_inodes="))
