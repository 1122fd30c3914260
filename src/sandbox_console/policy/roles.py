"""Decides whether a person's role and labels allow an action, in a pure function."""

from __future__ import annotations

from sandbox_console.model.access import Access
from sandbox_console.model.action import Action, Create, OpenShell, Update
from sandbox_console.model.host_action import HostAction, PullImage, RemoveSnapshot, RestoreSnapshot
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Deny

RULE = "role"
"""The rule that the audit log names when a person may not do something."""


def forbidden(action: Action, rights: Access, target: Sandbox | None) -> Deny | None:
    """Why a person may not do this; None if nothing speaks against it."""
    if rights.role == "viewer" and not watches(action):
        return Deny("you are a viewer, who changes nothing", RULE, hint="an admin can give you the role operator")
    if isinstance(action, HostAction):
        return _of_host(action, rights)
    if isinstance(action, (Create, Update)):
        return _out_of_scope(action.spec, rights) or _of_this_machine(action.spec, rights, target)
    return None


def watches(action: Action) -> bool:
    """Whether an action only shows a kept shell."""
    return isinstance(action, OpenShell) and bool(action.attach) and action.read_only


def _of_host(action: HostAction, rights: Access) -> Deny | None:
    """Deny what concerns everybody on a host: images for all but admins, and snapshots for those with labels."""
    if isinstance(action, PullImage):
        return None
    snapshot = isinstance(action, (RestoreSnapshot, RemoveSnapshot))
    if rights.labels or not (snapshot or rights.role == "admin"):
        return Deny(f"{action.verb} concerns sandboxes of others: it is for admins who see all of them", RULE)
    return None


def _out_of_scope(spec: SandboxSpec, rights: Access) -> Deny | None:
    if rights.sees(spec.labels):
        return None
    pairs = ", ".join(f"{key}={value}" for key, value in rights.labels.items())
    return Deny(f"your sandboxes have the label {pairs}", RULE, hint="leave that label out, or as it is")


def _of_this_machine(spec: SandboxSpec, rights: Access, target: Sandbox | None) -> Deny | None:
    """Deny folders of the server's machine, which belong to whoever runs the server."""
    if rights.role == "admin" or rights.folders:
        return None
    had = target.spec if target is not None else None
    if spec.workspace and spec.workspace != (had.workspace if had else None):
        return Deny("a workspace is a folder of the server's machine: it is for admins", RULE)
    if spec.image.startswith("dir:") and spec.image != (had.image if had else ""):
        return Deny("an image of dir: is a folder of the server's machine: it is for admins", RULE)
    return None
