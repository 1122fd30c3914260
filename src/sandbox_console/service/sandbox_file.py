"""Reads ``sandbox.toml``, the sandboxes of a folder, as a file that somebody else may have written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from sandbox_console.backends.common.installation import Installation
from sandbox_console.errors import InvalidSpec, UsageError
from sandbox_console.model import check
from sandbox_console.model.spec import MADE_BY, SandboxSpec
from sandbox_console.service.config_lines import line_in_table

TABLE = "sandbox"
_MOST = 100
"""The most sandboxes of one file. A mistake, or a hostile file, must not fill the machine."""

_DIR = "dir:"
_WALLS = ("runtime", "seccomp", "ptrace", "nested_userns")


class SandboxFile(Struct, frozen=True):
    """The sandboxes of a file. ``path`` is absolute, with links followed; ``mark`` is in the label of each of them."""

    path: Path
    mark: str
    specs: tuple[SandboxSpec, ...] = ()

    def wanted(self, spec: SandboxSpec) -> SandboxSpec:
        """A spec of the file with the label that says which file made it."""
        return structs.replace(spec, labels={**spec.labels, MADE_BY: self.mark})

    def made(self, labels: Mapping[str, str]) -> bool:
        """Whether a sandbox with these labels was made by this file."""
        return labels.get(MADE_BY) == self.mark


def mark_of(path: Path, state: Path) -> str:
    """The value of the label for a file: its path, and a hash that only this installation can make.

    So nobody who can only choose labels, such as a caller of the API, can make a sandbox pass for one of the file.
    Raises BackendError if the installation's id cannot be stored.
    """
    known = f"{Installation(state).made()} {path}".encode("utf-8", "surrogateescape")
    return f"{path}#{hashlib.blake2b(known, digest_size=6).hexdigest()}"


def read_specs(path: Path, text: str, values: Mapping[str, Any]) -> tuple[SandboxSpec, ...]:
    """The specs of a file: a plain spec, or one for each ``[[sandbox]]``. Relative paths are relative to the file.

    Raises UsageError, which names each problem with its line.
    """
    tables = _tables(path, values)
    wrong: list[str] = []
    found: dict[str, SandboxSpec] = {}
    for number, table in enumerate(tables):
        try:
            spec = _spec(path.parent, table)
        except InvalidSpec as error:
            nth = number if TABLE in values else None
            wrong += [
                f"{_position(path, text, field, nth)}: {field}: {reason}" for field, reason in error.problems.items()
            ]
        else:
            if spec.name in found:
                wrong.append(f"{path}: two sandboxes have the name {spec.name!r}")
            found[spec.name] = spec
    if wrong:
        raise UsageError("; ".join(wrong), hint="docs/spec.md lists the fields")
    return tuple(found.values())


def _tables(path: Path, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if TABLE not in values:
        return [values]
    tables = values[TABLE]
    if len(values) > 1:
        other = next(key for key in values if key != TABLE)
        raise UsageError(f"{path}: {other!r} stands beside [[sandbox]]", hint="move it into each [[sandbox]]")
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        raise UsageError(f"{path}: sandbox is not a list of tables", hint="begin each with [[sandbox]]")
    if len(tables) > _MOST:
        raise UsageError(f"{path} has {len(tables)} sandboxes; {_MOST} are the most", hint="use several files")
    return tables


def _spec(folder: Path, table: Mapping[str, Any]) -> SandboxSpec:
    spec = SandboxSpec.from_dict(table)
    if spec.workspace and not spec.workspace.startswith("/"):
        spec = structs.replace(spec, workspace=str(folder / spec.workspace))
    if spec.image.startswith(_DIR) and not spec.image.startswith(f"{_DIR}/"):
        spec = structs.replace(spec, image=f"{_DIR}{folder / spec.image.removeprefix(_DIR)}")
    problems = check.problems(spec, allow_ip=True)
    if MADE_BY in spec.labels:
        problems["labels"] = f"{MADE_BY!r} is set by up, not by a file"
    if problems:
        raise InvalidSpec(problems)
    # Links are followed now, so that what is asked about is what is mounted.
    return structs.replace(spec, workspace=str(Path(spec.workspace).resolve())) if spec.workspace else spec


def _position(path: Path, text: str, field: str, nth: int | None) -> str:
    line = line_in_table(text, TABLE if nth is not None else "", nth or 0, field)
    return f"{path}, line {line}" if line else str(path)


def beyond(spec: SandboxSpec, before: SandboxSpec | None, folder: Path) -> Iterator[str]:
    """What a spec asks of this machine beyond a sandbox in its folder, a sentence each, unless ``before`` had it too.

    The user has to see these, because the file may have come with a repository that somebody else wrote.
    """
    old = before or SandboxSpec(spec.name)
    if spec.workspace and spec.workspace != old.workspace and not Path(spec.workspace).is_relative_to(folder):
        yield f"it may write {spec.workspace}, which is outside {folder}"
    if spec.image.startswith(_DIR) and spec.image != old.image:
        yield f"it may read {spec.image.removeprefix(_DIR)}, as its root"
    if new := [name for name in spec.secrets if name not in old.secrets]:
        yield f"it gets the secrets {', '.join(new)}"
    if new := [host for host in spec.egress if host not in old.egress]:
        yield f"it may connect to {', '.join(new)}"
    if new := [port for port in spec.ports if port not in old.ports]:
        yield f"its ports are published on this host: {', '.join(new)}"
    for name in _WALLS:
        value = getattr(spec, name)
        if value and value != getattr(old, name):
            yield f"its isolation is changed: {name} = {value if isinstance(value, str) else 'true'}"
