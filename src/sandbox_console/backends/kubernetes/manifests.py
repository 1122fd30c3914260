"""Makes a Sandbox of agents.x-k8s.io, and its NetworkPolicy, of a spec."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.backends.kubernetes import origin
from sandbox_console.backends.kubernetes.labels import fitting, pairs_of
from sandbox_console.backends.kubernetes.objects import GROUP, VERSION
from sandbox_console.backends.kubernetes.origin import SECRET_REF
from sandbox_console.model.spec import SandboxSpec

MAIN = "main"
"""The name of the container that the command runs in."""

OWNER_LABEL = "sandbox-console.sandbox"
"""On the Pod of a Sandbox that a console made: the Sandbox's name, which its NetworkPolicy selects."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SECRET = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9._-]{1,253}")
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_TMP_MIB = 512


def problems(spec: SandboxSpec, selector: str = "", *, agent_sandbox: bool = True) -> dict[str, str]:
    """What Kubernetes does not take, by field."""
    found = {
        "name": "" if _NAME.fullmatch(spec.name) else "Kubernetes takes a-z, 0-9 and '-', at most 63",
        "image": "" if spec.image else "an image is needed",
        "user": "" if not spec.user or _USER.fullmatch(spec.user) else "Kubernetes takes a number, or UID:GID",
        "env": _env_problem(spec.env),
        "egress": "a NetworkPolicy knows addresses, not the names of hosts" if spec.egress else "",
        "secrets": f"values are not sent to a cluster; write env NAME={SECRET_REF}SECRET/KEY" if spec.secrets else "",
    }
    said = {field: text for field, text in found.items() if text}
    return {**origin.problems(spec, selector, agent_sandbox=agent_sandbox), **said}


def _env_problem(env: Mapping[str, str]) -> str:
    for name, value in env.items():
        if value.startswith(SECRET_REF) and not _SECRET.fullmatch(value.removeprefix(SECRET_REF)):
            return f"{name}: write {SECRET_REF}SECRET/KEY"
    return ""


def box(spec: SandboxSpec, installation: str) -> dict[str, Any]:
    """The Sandbox, suspended: its first start runs it."""
    labels = labels_of(spec)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Sandbox",
        "metadata": {
            "name": spec.name,
            "labels": labels,
            "annotations": {own.SPEC: stored(spec), own.INSTALLATION: installation},
        },
        "spec": {
            "operatingMode": "Suspended",
            "podTemplate": {"metadata": {"labels": labels | {OWNER_LABEL: spec.name}}, "spec": _pod(spec)},
        },
    }


def stored(spec: SandboxSpec) -> str:
    """The spec as its annotation keeps it."""
    return json.dumps(spec.to_dict(), sort_keys=True)


def labels_of(spec: SandboxSpec) -> dict[str, str]:
    """The labels that Kubernetes accepts. The annotation has all of them."""
    return fitting(spec.labels)


def pod(spec: SandboxSpec, installation: str, selector: str) -> dict[str, Any]:
    """A Pod of its own, with labels that fit the selector. It runs at once."""
    labels = {**labels_of(spec), **(pairs_of(selector) or {}), OWNER_LABEL: spec.name}
    notes = {own.SPEC: stored(spec), own.INSTALLATION: installation}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": spec.name, "labels": labels, "annotations": notes},
        "spec": _pod(spec),
    }


def owner(made: Mapping[str, Any], uid: str) -> dict[str, str]:
    """A reference to an object that was made, by which others go with it."""
    return {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": made["metadata"]["name"], "uid": uid}


def policy_name(spec: SandboxSpec) -> str:
    """The name of its NetworkPolicy."""
    return f"sandbox-console-{spec.name}"


def network_policy(spec: SandboxSpec, *owners: Mapping[str, str]) -> dict[str, Any]:
    """A policy that allows no traffic, in or out. It is deleted with its owner."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": policy_name(spec), "ownerReferences": list(owners)},
        "spec": {"podSelector": {"matchLabels": {OWNER_LABEL: spec.name}}, "policyTypes": ["Ingress", "Egress"]},
    }


def _pod(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "containers": [_container(spec)],
        **of_pod(spec),
    }
    if spec.read_only_root:
        found["volumes"] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_TMP_MIB}Mi"}}]
    return found


def of_pod(spec: SandboxSpec) -> dict[str, Any]:
    """What a spec asks of a whole Pod."""
    found: dict[str, Any] = {}
    if spec.runtime:
        found["runtimeClassName"] = spec.runtime
    if spec.max_duration_s is not None:
        found["activeDeadlineSeconds"] = math.ceil(spec.max_duration_s)
    return found


def _container(spec: SandboxSpec) -> dict[str, Any]:
    wanted = asked(spec)
    found: dict[str, Any] = {
        "name": MAIN,
        "image": origin.origin(spec.image).name,
        "securityContext": _security(spec),
        "resources": {"limits": wanted.pop("limits")},
        **wanted,
    }
    if spec.read_only_root:
        found["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the guest's
    return found


def asked(spec: SandboxSpec) -> dict[str, Any]:
    """What a spec asks of its main container: fields of a container, and its ``limits``."""
    found: dict[str, Any] = {
        "env": [_variable(name, value) for name, value in spec.env.items()],
        "limits": _limits(spec),
    }
    if spec.command:  # as for Docker: the image's own entry point, if it has one, gets these words
        found["args"] = list(spec.command)
    if spec.workdir:
        found["workingDir"] = spec.workdir
    return found


def _limits(spec: SandboxSpec) -> dict[str, str]:
    limits = {}
    if spec.cpus is not None:
        limits["cpu"] = f"{max(1, round(spec.cpus * 1000))}m"
    if spec.memory_mib is not None:
        limits["memory"] = f"{spec.memory_mib}Mi"
    return limits


def _variable(name: str, value: str) -> dict[str, Any]:
    if not value.startswith(SECRET_REF):
        return {"name": name, "value": value.replace("$(", "$$(")}  # no reference to other variables
    secret, _, key = value.removeprefix(SECRET_REF).partition("/")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _security(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "readOnlyRootFilesystem": spec.read_only_root,
    }
    if spec.user:
        user, _, group = spec.user.partition(":")
        found["runAsUser"] = int(user)
        if group:
            found["runAsGroup"] = int(group)
    return found
