"""Turns a spec into the arguments with which the runtime boots it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox_console.backends.microsandbox import labels, network
from sandbox_console.backends.microsandbox.ports import Ports
from sandbox_console.errors import InvalidSpec
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

WORKSPACE = "/workspace"
SECRETS = "/run/secrets"
DEFAULT_MIB = 512
HEADROOM = 4
"""A running microVM can grow to this multiple of its initial memory, and to every CPU of the host."""


Own = tuple[str, str]
"""The id of the sandbox, and that of the installation that makes it."""


def arguments(
    module: Any, own: Own, spec: SandboxSpec, secrets: Sequence[ResolvedSecret], options: Options, ports: Ports = ()
) -> dict[str, Any]:
    """The arguments of ``Sandbox.create`` except the name."""
    memory, cpus = spec.memory_mib or DEFAULT_MIB, whole_cpus(spec)
    placeholders = network.substituted(module, secrets)
    asked = {
        "image": image(module, spec.image),
        "memory": memory,
        "max_memory": memory * HEADROOM,
        "cpus": cpus,
        "max_cpus": max(cpus, os.cpu_count() or 1),
        "workdir": spec.workdir,
        "user": spec.user,
        "env": dict(spec.env),
        "labels": own_labels(own, spec, secrets),
        "volumes": volumes(module, spec, secrets),
        "network": network.network(module, spec.egress, bool(placeholders), options.authorities, ports),
        "secrets": placeholders or None,
        "max_duration": spec.max_duration_s,
        "idle_timeout": spec.idle_timeout_s,
        "registry_insecure": options.insecure(spec.image),
        "security": module.SecurityProfile.RESTRICTED,
        "detached": True,  # otherwise it ends with this console
    }
    return {key: value for key, value in asked.items() if value is not None}


class Options:
    """The backend's settings: ``ca_certs`` and ``insecure_registries``."""

    def __init__(self, ca_certs: Sequence[str] = (), insecure_registries: Sequence[str] = ()) -> None:
        self.authorities = tuple(ca_certs)
        self._registries = tuple(insecure_registries)

    def insecure(self, image: str) -> bool:
        """Whether the image's registry is reached without TLS."""
        return any(image.startswith(f"{registry}/") for registry in self._registries)


def own_labels(own: Own, spec: SandboxSpec, secrets: Sequence[ResolvedSecret]) -> dict[str, str]:
    """The user's labels and the console's."""
    identity, installation = own
    shown = json.dumps(spec.to_dict(), ensure_ascii=False)
    found = {**spec.labels, labels.ID: identity, labels.INSTALLATION: installation, labels.SPEC: shown}
    if names := [secret.name for secret in secrets if secret.inject == "placeholder"]:
        found[labels.SECRETS] = ",".join(names)
    return found


def image(module: Any, name: str) -> Any:
    """An image by name, or a folder of this host as ``dir:PATH``."""
    return module.Image.bind(name.removeprefix("dir:")) if name.startswith("dir:") else name


def path_problem(name: str) -> str:
    """Why a name is none of an image; empty if it is one. The runtime would take a path for a folder of this host."""
    if name[:1].isascii() and (name[:1].isalnum() or name[:1] == "["):
        return ""
    return f"{name!r} is not an image's name; a folder with a root file system is dir:PATH"


def whole_cpus(spec: SandboxSpec) -> int:
    """The number of vCPUs, rounded up if limits are best-effort. Otherwise raises InvalidSpec for a fraction."""
    cpus = spec.cpus if spec.cpus is not None else 1
    if cpus != int(cpus) and spec.limits == "strict":
        raise InvalidSpec({"cpus": f"{cpus:g}: a microVM has whole vCPUs"}, hint='or set limits = "best-effort"')
    return math.ceil(cpus)


def volumes(module: Any, spec: SandboxSpec, secrets: Sequence[ResolvedSecret]) -> dict[str, Any]:
    """The mounts: the workspace, and a RAM disk for secrets that are files."""
    found: dict[str, Any] = {}
    if spec.workspace:
        # The runtime's default would store the guest's modes and links in attributes that no other program reads.
        found[WORKSPACE] = module.Volume.bind(
            spec.workspace, nosuid=True, stat_virtualization=module.StatVirtualization.RELAXED,
            host_permissions=module.HostPermissions.MIRROR,
        )  # fmt: skip
    if any(secret.inject == "file" for secret in secrets):
        found[SECRETS] = module.Volume.tmpfs(size_mib=1)
    return found


def problems(spec: SandboxSpec) -> Mapping[str, str]:
    """What is wrong with a spec's values for a microVM, by field. It reads only folders of this host."""
    folder = spec.image.removeprefix("dir:") if spec.image.startswith("dir:") else ""
    cpus = spec.cpus
    found = {
        "image": _image_problem(spec.image, folder),
        "cpus": "a microVM has whole vCPUs" if cpus and cpus != int(cpus) and spec.limits == "strict" else "",
        "workspace": "" if not spec.workspace or Path(spec.workspace).is_dir() else f"{spec.workspace} is not a folder",
    }
    if cpus and cpus > (os.cpu_count() or 1):
        found["cpus"] = f"{cpus:g} is above this host's {os.cpu_count()} CPUs"
    return {field: text for field, text in found.items() if text}


def _image_problem(name: str, folder: str) -> str:
    if not name.strip():
        return "an image is needed, for example alpine:3, or dir:PATH for a folder with a root file system"
    if not folder and (wrong := path_problem(name)):
        return wrong
    return f"{folder} is not a folder" if folder and not Path(folder).is_dir() else ""
