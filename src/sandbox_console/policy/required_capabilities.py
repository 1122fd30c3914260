"""The capabilities that an action or a spec needs."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_console.model.action import (
    Action,
    Attach,
    Bundle,
    ChangeEgress,
    Commit,
    Create,
    DenyEgress,
    Download,
    EndShell,
    Exec,
    Fork,
    Forward,
    Kill,
    OpenShell,
    Pause,
    Quarantine,
    Release,
    Remove,
    Rename,
    Restart,
    Resume,
    Start,
    Stop,
    TakeSnapshot,
    Update,
    Upload,
)
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import (
    LoadImage,
    PruneImages,
    PullImage,
    RemoveImage,
    RemoveSnapshot,
    RestoreSnapshot,
    SaveImage,
)
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS

LIMITS = {field.name: Capability(field.needs) for field in FIELDS if field.limit and field.needs}
"""The fields that ``limits = "best-effort"`` accepts even if their capability is missing."""

_FIELDS = {field.name: Capability(field.needs) for field in FIELDS if field.needs and not field.limit}
_INJECT = {
    "env": Capability.SECRET_ENV,
    "file": Capability.SECRET_FILE,
    "placeholder": Capability.SECRET_PLACEHOLDER,
}


_VERBS: Mapping[type[Action], Capability | None] = {
    Create: Capability.CREATE,
    Start: Capability.START,
    Stop: Capability.STOP,
    Kill: Capability.KILL,
    Restart: Capability.RESTART,
    Pause: Capability.PAUSE,
    Resume: Capability.PAUSE,
    Remove: Capability.REMOVE,
    Exec: Capability.EXEC,
    OpenShell: Capability.SHELL,
    EndShell: None,  # its holder ends it
    Update: None,  # its plan lists what each change needs
    Rename: Capability.RENAME,
    Upload: Capability.COPY,
    Download: Capability.COPY,
    Attach: Capability.ATTACH,
    Forward: Capability.FORWARD,
    Commit: Capability.COMMIT,
    PullImage: Capability.IMAGES_CHANGE,
    RemoveImage: Capability.IMAGES_CHANGE,
    PruneImages: Capability.IMAGES_CHANGE,
    LoadImage: Capability.IMAGE_FILES,
    SaveImage: Capability.IMAGE_FILES,
    TakeSnapshot: Capability.SNAPSHOT,
    RestoreSnapshot: Capability.SNAPSHOT,
    RemoveSnapshot: Capability.SNAPSHOT,
    Fork: Capability.FORK,
    ChangeEgress: Capability.EGRESS_UPDATE,
    DenyEgress: Capability.EGRESS_UPDATE,
    Bundle: None,  # what a backend cannot give is listed as missing
    Quarantine: None,  # the same holds for its steps
    Release: None,
}


def of_verb(action: Action) -> Capability | None:
    """The capability that the verb itself needs. Raises KeyError for an unknown verb."""
    if isinstance(action, OpenShell) and action.keep:
        return Capability.SHELL_KEEP
    if isinstance(action, Exec | OpenShell) and action.user:
        return Capability.EXEC_USER
    return _VERBS[type(action)]


def of_spec(spec: SandboxSpec, injects: Mapping[str, str]) -> list[tuple[str, Capability]]:
    """What each field needs, as (field, capability); ``injects`` says how each secret is handed over."""
    found = [(name, need) for name, need in _FIELDS.items() if getattr(spec, name)]
    if spec.limits == "strict":
        found += [(name, need) for name, need in LIMITS.items() if getattr(spec, name) is not None]
    found.append(("egress", Capability.EGRESS_ALLOWLIST if spec.egress else Capability.EGRESS_NONE))
    found += [("secrets", _INJECT[injects.get(name, "env")]) for name in spec.secrets]
    return found
