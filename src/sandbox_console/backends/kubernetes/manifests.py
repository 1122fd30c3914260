"""Makes a Sandbox of agents.x-k8s.io, and its NetworkPolicy, of a spec."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.backends.kubernetes.objects import GROUP, VERSION
from sandbox_console.model.spec import SandboxSpec

MAIN = "main"
"""The name of the container that the command runs in."""

OWNER_LABEL = "sandbox-console.sandbox"
"""On the Pod of a Sandbox that a console made: the Sandbox's name, which its NetworkPolicy selects."""

SECRET_REF = "secretKeyRef:"  # noqa: S105 - a form of words
"""How the value of a variable names a Secret of the cluster: ``secretKeyRef:NAME/KEY``. It is never read here."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SECRET = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9._-]{1,253}")
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_TMP_MIB = 512


def problems(spec: SandboxSpec) -> dict[str, str]:
    """What Kubernetes does not take, by field."""
    found = {
        "name": "" if _NAME.fullmatch(spec.name) else "Kubernetes takes a-z, 0-9 and '-', at most 63",
        "image": "" if spec.image else "an image is needed",
        "user": "" if not spec.user or _USER.fullmatch(spec.user) else "Kubernetes takes a number, or UID:GID",
        "env": _env_problem(spec.env),
        "egress": "a NetworkPolicy knows addresses, not the names of hosts" if spec.egress else "",
        "secrets": f"values are not sent to a cluster; write env NAME={SECRET_REF}SECRET/KEY" if spec.secrets else "",
    }
    return {field: text for field, text in found.items() if text}


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
    return {key: value for key, value in spec.labels.items() if _KEY.fullmatch(key) and _LABEL.fullmatch(value)}


def network_policy(spec: SandboxSpec, uid: str) -> dict[str, Any]:
    """A policy that allows no traffic, in or out. It is deleted with its Sandbox."""
    owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Sandbox", "name": spec.name, "uid": uid}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"sandbox-console-{spec.name}"[:253], "ownerReferences": [owner]},
        "spec": {"podSelector": {"matchLabels": {OWNER_LABEL: spec.name}}, "policyTypes": ["Ingress", "Egress"]},
    }


def _pod(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "containers": [_container(spec)],
    }
    if spec.runtime:
        found["runtimeClassName"] = spec.runtime
    if spec.max_duration_s is not None:
        found["activeDeadlineSeconds"] = math.ceil(spec.max_duration_s)
    if spec.read_only_root:
        found["volumes"] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_TMP_MIB}Mi"}}]
    return found


def _container(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": MAIN,
        "image": spec.image,
        "env": [_variable(name, value) for name, value in spec.env.items()],
        "securityContext": _security(spec),
        "resources": {"limits": _limits(spec)},
    }
    if spec.command:  # as for Docker: the image's own entry point, if it has one, gets these words
        found["args"] = list(spec.command)
    if spec.workdir:
        found["workingDir"] = spec.workdir
    if spec.read_only_root:
        found["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the guest's
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
