"""Makes a Sandbox of a Template, and a Claim on a WarmPool, of a spec."""

from __future__ import annotations

import copy
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.backends.kubernetes import manifests
from sandbox_console.backends.kubernetes.claims import EXTENSIONS, KIND, TEMPLATE_REF, Template
from sandbox_console.backends.kubernetes.objects import VERSION
from sandbox_console.backends.kubernetes.origin import origin
from sandbox_console.model.spec import SandboxSpec

_BLUEPRINT = ("podTemplate", "volumeClaimTemplates", "service")
"""What a Template and a Sandbox have in common."""


def box(spec: SandboxSpec, installation: str, template: Template) -> dict[str, Any]:
    """A Sandbox as the Template describes it, with what the spec asks for in its main container."""
    made = manifests.box(spec, installation)
    labels = made["spec"]["podTemplate"]["metadata"]["labels"]
    blueprint = {key: copy.deepcopy(value) for key, value in template.spec.items() if key in _BLUEPRINT}
    pod = blueprint["podTemplate"]
    meta = pod.get("metadata") or {}
    pod["metadata"] = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    made["metadata"]["annotations"][TEMPLATE_REF] = template.metadata.name
    made["spec"] |= blueprint
    _ask(pod["spec"], spec)
    return made


def _ask(pod: dict[str, Any], spec: SandboxSpec) -> None:
    """Put what is asked for in place of what the Template says."""
    pod.setdefault("automountServiceAccountToken", False)
    pod |= manifests.of_pod(spec)
    main = pod["containers"][0]
    asked = manifests.asked(spec)
    names = {one["name"] for one in asked["env"]}
    main["env"] = [*(one for one in main.get("env") or () if one.get("name") not in names), *asked.pop("env")]
    limits = asked.pop("limits")
    resources = main.get("resources") or {}
    main["resources"] = {**resources, "limits": {**(resources.get("limits") or {}), **limits}}
    main |= asked


def claim(spec: SandboxSpec, installation: str) -> dict[str, Any]:
    """A Claim on a WarmPool. With variables, the controller makes a new Sandbox instead of taking one of the pool."""
    labels = manifests.labels_of(spec)
    wanted: dict[str, Any] = {
        "warmPoolRef": {"name": origin(spec.image).name},
        "additionalPodMetadata": {"labels": labels},
    }
    if spec.env:
        wanted["env"] = [{"name": name, "value": value.replace("$(", "$$(")} for name, value in spec.env.items()]
    if spec.max_duration_s is not None:
        end = datetime.now(UTC) + timedelta(seconds=math.ceil(spec.max_duration_s))
        wanted["lifecycle"] = {"shutdownTime": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": "Retain"}
    notes = {own.SPEC: manifests.stored(spec), own.INSTALLATION: installation}
    return {
        "apiVersion": f"{EXTENSIONS}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": spec.name, "labels": labels, "annotations": notes},
        "spec": wanted,
    }
