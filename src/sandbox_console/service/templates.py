"""Templates: specs without a name, each a TOML file of the user's own or a ``[templates.NAME]`` of the config."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from sandbox_console.errors import ConfigError, Conflict, InvalidSpec, NotFound, UsageError
from sandbox_console.model import check
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.safe_toml import parse_toml
from sandbox_console.model.secret import shown_value
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.redactor import MASK
from sandbox_console.service.config import Config, refuse_strangers
from sandbox_console.service.config_lines import line_of_key
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.local_change import local_change
from sandbox_console.service.reads.secrets import Secrets

_TOLD = "it contains the value of a secret"
_LONGEST = 1 << 20
_SUFFIX = ".toml"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Template(Struct, frozen=True):
    """A template. ``fields`` are those of a spec file, without a name; ``source`` is where it is kept.

    ``problem`` says why it cannot be used, with the file and the line if it has one; then ``fields`` may be empty.
    """

    name: str
    source: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    stored: bool = True

    def spec(self, name: str) -> SandboxSpec:
        """The spec of a sandbox of this name. Raises InvalidSpec."""
        return SandboxSpec.from_dict({**self.fields, "name": name})


class Templates:
    """The templates of one user. ``config`` is the configuration now, whose tables only the user's editor changes."""

    def __init__(self, folder: Path, config: Callable[[], Config], secrets: Secrets, audit_log: AuditLog) -> None:
        self.folder, self._config, self._secrets, self._audit_log = folder, config, secrets, audit_log

    def every(self) -> Sequence[Template]:
        """All of them by name, also those that cannot be used. Raises ConfigError if the folder cannot be read."""
        templates = [
            Template(name, "config", dict(table), stored=False) for name, table in self._config().templates.items()
        ]
        return sorted(
            [*templates, *(self._read(name) for name in self._names())],
            key=lambda template: (template.name, template.stored),
        )

    def get(self, name: str) -> Template:
        """The template of this name. Raises NotFound, UsageError for a bad name, ConfigError for a broken one."""
        _need_name(name)
        known = [template for template in self.every() if template.name == name]
        if not known:
            near = nearest(name, [template.name for template in self.every()])
            hint = f"did you mean {near}?" if near else "sandbox-console templates ls"
            raise NotFound(f"there is no template {name!r}", hint=hint)
        if known[0].problem:
            raise ConfigError(known[0].problem, hint=f"correct it, or remove it: sandbox-console templates rm {name}")
        return known[0]

    async def save(self, name: str, fields: Mapping[str, Any], *, replace: bool = False) -> Sequence[str]:
        """Store a template in a file of mode 0600. Returns the variables that are left out, as they sound secret.

        Raises UsageError for a bad name, InvalidSpec, also for a secret's value in any field, Conflict if there is one
        and not ``replace``, ConfigError.
        """
        _need_name(name)
        await self._secrets.learn()
        env = fields.get("env", {})
        left = [key for key, value in env.items() if shown_value(key, value) != value] if isinstance(env, dict) else []
        kept = {key: value for key, value in fields.items() if key != "name"}
        if left:
            kept["env"] = {key: value for key, value in env.items() if key not in left}
        if problems := {key: _TOLD for key, value in kept.items() if any(map(self._tells, _texts(value)))}:
            raise InvalidSpec(problems, hint="name the secret in secrets, not its value")
        await self._recorded("template-save", name, lambda: self._store(name, kept, replace))
        return left

    def _tells(self, text: str) -> bool:
        return MASK.decode() in text or self._secrets.masked(text) != text

    def _store(self, name: str, kept: Mapping[str, Any], replace: bool) -> None:
        if name in self._config().templates:
            hint = "choose another name, or change it there"
            raise Conflict(f"[templates.{name}] of the configuration has this name", hint=hint)
        if problems := _problems(kept):
            raise InvalidSpec(problems)
        import tomli_w  # not needed by the first screen

        refuse_strangers("the folder of templates", self.folder)
        path = self.folder / f"{name}{_SUFFIX}"
        try:
            for folder in (*reversed(self.folder.parents), self.folder):
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
            self._write(path, tomli_w.dumps(kept).encode(), replace=replace)
        except FileExistsError:
            hint = "choose another name, or replace it with --force"
            raise Conflict(f"there is a template {name!r}", hint=hint) from None
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}", hint=f"see: ls -ld {self.folder}"
            ) from None

    async def remove(self, name: str) -> None:
        """Remove a template's file, also a broken one. Raises NotFound, UsageError, ConfigError."""
        _need_name(name)
        await self._recorded("template-remove", name, lambda: self._remove(name))

    async def _recorded(self, verb: str, name: str, change: Callable[[], None]) -> None:
        read_only = self._config().policy.read_only
        act = partial(asyncio.to_thread, change)
        await local_change(self._audit_log, verb, {"template": name}, act, read_only=read_only)

    def _remove(self, name: str) -> None:
        path = self.folder / f"{name}{_SUFFIX}"
        try:
            path.unlink()
        except FileNotFoundError:
            if name in self._config().templates:
                hint = "remove its table there"
                raise UsageError(f"[templates.{name}] is in the configuration", hint=hint) from None
            raise NotFound(f"there is no template {name!r}", hint="sandbox-console templates ls") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be removed: {error.strerror}", hint=f"see: ls -ld {path}") from None

    def _names(self) -> list[str]:
        try:
            found = [entry.name for entry in os.scandir(self.folder)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"{self.folder} cannot be read: {error.strerror}", hint=f"see: ls -ld {self.folder}"
            ) from None
        return [name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX) and not name.startswith(".")]

    def _read(self, name: str) -> Template:
        path = self.folder / f"{name}{_SUFFIX}"
        broken = Template(name, str(path))
        try:
            _need_name(name)
            refuse_strangers("the template", path)
            text = _text(path)
        except (UsageError, OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or ("it is not UTF-8" if isinstance(error, ValueError) else error)
            return Template(name, broken.source, problem=f"{path}: {reason}")
        try:
            fields = parse_toml(text)
        except RecursionError:
            return Template(name, broken.source, problem=f"{path}: it is nested too deep")
        except ValueError as error:  # it says "(at line 3, column 5)"
            return Template(name, broken.source, problem=f"{path}: {error}")
        wrong = [f"{_position(path, text, key)}: {key}: {reason}" for key, reason in _problems(fields).items()]
        if name in self._config().templates:
            wrong.append(f"{path}: [templates.{name}] of the configuration has the same name")
        return Template(name, broken.source, fields, "; ".join(wrong))

    def _write(self, path: Path, data: bytes, *, replace: bool) -> None:
        part = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                part.replace(path)
            else:
                os.link(part, path)  # unlike a rename, it never replaces what another console has just saved
        finally:
            with suppress(FileNotFoundError):
                part.unlink()


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for text in pair)
        case list() | tuple():
            yield from value


def _need_name(name: str) -> None:
    if reason := check.name_problem(name):
        raise UsageError(f"{name!r} is not a template's name: {reason}", hint="such as python-3.12")


def _problems(fields: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with a template's fields."""
    wrong = {"name": "a template has no name: it is given to each sandbox"} if "name" in fields else {}
    try:
        return check.problems(SandboxSpec.from_dict({**fields, "name": "x"}), allow_ip=True) | wrong
    except InvalidSpec as error:
        return error.problems | wrong


def _position(path: Path, text: str, key: str) -> str:
    line = line_of_key(text, (key,))
    return f"{path}, line {line}" if line else str(path)


def _text(path: Path) -> str:
    """The text of a regular file. A FIFO is not waited for. Raises OSError, UnicodeDecodeError."""
    with os.fdopen(os.open(path, _READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(errno.EFBIG, f"it is longer than {_LONGEST >> 20} MiB")
    return data.decode("utf-8-sig")
