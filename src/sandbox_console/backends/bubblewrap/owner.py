"""The host user of a sandbox's processes, and whether that user can do what the spec needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.errors import BackendError, Conflict, InvalidSpec


def choose(workspace: str | None, taken: Iterable[int | None], options: Options) -> int | None:
    """A user id for the sandbox if root runs the console; else None, and it runs as the user of the console.

    A workspace that already belongs to an id of the range keeps it, so a recreated sandbox still owns its files. Raises
    BackendError when the range is used up.
    """
    if os.geteuid() != 0:
        return None
    ids = range(options.uid_base, options.uid_base + options.uid_count)
    if workspace:
        owner = Path(workspace).stat().st_uid
        if owner in ids:
            return owner
    used = set(taken)
    for uid in ids:
        if uid not in used:
            return uid
    raise BackendError(f"all {options.uid_count} user ids of bubblewrap's range are taken", hint="raise uid_count")


def check_workspace(workspace: str, uid: int | None) -> None:
    """Raise InvalidSpec if the sandbox's user cannot write to the workspace, and Conflict if a link leads to it now."""
    if not _is_real(workspace):  # it was when it was created
        raise Conflict(f"the workspace {workspace} is behind a link now", hint="put the folder back")
    if _can(workspace, uid, "test -r . && test -w . && test -x ."):
        return
    if uid is None:
        raise InvalidSpec({"workspace": f"you cannot write {workspace}"}, hint=f"chmod u+rwx {workspace}")
    reach = _can(str(Path(workspace).parent), uid, ":")
    problem = "cannot write it" if reach else "cannot reach it: a folder above it is closed"
    raise InvalidSpec(
        {"workspace": f"{workspace}: as root's, the sandbox runs as the unprivileged user {uid}, which {problem}"},
        hint=f"chown {uid} {workspace}" if reach else "put the workspace where every user may go, such as under /srv",
    )


def check_readable(root: Path, uid: int | None) -> None:
    """Raise InvalidSpec if the sandbox's user cannot read an image's folder."""
    if not _can(str(root), uid, "test -r . && test -x ."):
        raise InvalidSpec(
            {"image": f"{root} cannot be read by the sandbox's user {uid if uid is not None else os.geteuid()}"},
            hint=f"chmod a+rx {root} and the folders above it",
        )


def _is_real(path: str) -> bool:
    """Whether no link leads to a path. If one takes its place meanwhile, realpath(3) may fail."""
    with suppress(OSError):
        return os.path.realpath(path) == path
    return False


def _can(folder: str, uid: int | None, test: str) -> bool:
    """Whether a user can access a folder. The kernel is asked, as mode bits do not include ACLs, mounts and parents."""
    ids = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    done = subprocess.run(
        ["/bin/sh", "-c", f'cd -- "$1" && {test}', "sh", folder],
        cwd="/", env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, capture_output=True, check=False, **ids,
    )  # type: ignore[call-overload]  # fmt: skip
    return bool(done.returncode == 0)
