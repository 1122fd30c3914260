"""The configuration: a TOML file, then the environment, then flags. Unknown keys are errors."""

from __future__ import annotations

import errno
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct, field

from sandbox_console.audit.retention import MIB, RetentionPolicy
from sandbox_console.errors import ConfigError, UsageError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.model import hosts
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.policy.rules import Recorded, Rules
from sandbox_console.secrets.sources import SecretSource, problem
from sandbox_console.service import alert_options, host_options
from sandbox_console.service.alert_options import AlertOptions
from sandbox_console.service.config_lines import line_of
from sandbox_console.service.host_options import HostOptions
from sandbox_console.service.paths import PREFIX, Paths
from sandbox_console.service.server_options import (
    A3sBoxOptions,
    ApiOptions,
    McpOptions,
    MicrosandboxOptions,
    ServeTable,
    template_problem,
)

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
LONGEST = 4 << 20
"""The most bytes of a configuration file."""


class ViewOptions(Struct, frozen=True, kw_only=True):
    """One ``[tui.views.NAME]`` table: what the list shows, and how. ``sort`` is a column; ``-`` puts the largest first.

    An empty field keeps the default: no filter, no groups, newest first, the columns that are chosen automatically.
    """

    filter: str = ""
    group: str = ""
    sort: str = ""
    columns: tuple[str, ...] = ()
    faults: bool = False
    managed: bool = False


class TuiOptions(Struct, frozen=True, kw_only=True):
    """The ``[tui]`` table. ``stats_interval_s`` is the time between samples of the visible rows.

    ``keys`` gives actions other keys than those of the ``keymap``; the terminal app checks it when it starts.
    """

    theme: str = "sandbox-console"
    stats_interval_s: Positive = 2.0
    log_memory_mib: AtLeastOne = 64
    keymap: Literal["default", "lazydocker"] = "default"
    keys: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    views: dict[str, ViewOptions] = field(default_factory=dict)


class HighlightRule(Struct, frozen=True, kw_only=True):
    """What to colour in log lines: a regular expression, and a style."""

    pattern: str
    style: Literal["accent", "ok", "warn", "error", "fatal", "quiet"] = "accent"


class LogOptions(Struct, frozen=True, kw_only=True):
    """The ``[logs]`` table. ``retain`` keeps what was followed of a sandbox's log after its removal."""

    highlight: dict[str, HighlightRule] = field(default_factory=dict)
    json: bool = True
    retain: bool = False
    retain_mib: AtLeastOne = 256
    retain_each_mib: AtLeastOne = 16


class ShipOptions(Struct, frozen=True, kw_only=True):
    """The ``[audit.ship]`` table: the servers that get a copy of the audit log.

    ``dsn`` is where PostgreSQL's address is: ``env:NAME`` or ``file:PATH``. ``otlp`` is the address of a collector of
    OpenTelemetry, and ``otlp_headers`` where the headers are that it wants, as ``name=value,name=value``.
    """

    dsn: str = ""
    otlp: str = ""
    otlp_headers: str = ""
    interval_s: Positive = 5.0


class AuditOptions(Struct, frozen=True, kw_only=True):
    """The ``[audit]`` table: when a segment is sealed, and how many and how long they are kept (unset: all)."""

    segment_mib: AtLeastOne = 32
    keep_segments: AtLeastOne | None = None
    keep_days: Positive | None = None
    archive: str = ""
    ship: ShipOptions = field(default_factory=ShipOptions)

    @property
    def keep(self) -> RetentionPolicy:
        """The settings in the form that the log takes."""
        archive = Path(self.archive).expanduser() if self.archive else None
        return RetentionPolicy(self.segment_mib * MIB, self.keep_days, self.keep_segments, archive)


class RecordingOptions(Struct, frozen=True, kw_only=True):
    """The ``[recording]`` table. ``record`` names what ``mode`` is about: shells, commands, or both.

    If ``mode`` is ``required``, what cannot be recorded is refused.
    """

    mode: Literal["off", "best-effort", "required"] = "off"
    record: tuple[Recorded, ...] = ("shell",)
    max_mib: AtLeastOne = 64
    exec_max_kib: AtLeastOne = 1024
    keep_mib: AtLeastOne = 1024


class ShellOptions(Struct, frozen=True, kw_only=True):
    """The ``[shell]`` table. ``keep`` has a process of its own hold each shell, so that it outlives the console.

    A kept shell is ended after ``max_duration_s``, and keeps ``scrollback_mib`` of lines.
    """

    keep: bool = False
    max_duration_s: Positive = 86_400.0
    scrollback_mib: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8


class Config(Struct, frozen=True, kw_only=True):
    """Everything that a user sets. ``backends`` holds each backend's own table, which its provider checks.

    ``hosts`` has tables by a pattern of hosts' names.
    """

    backend: str = ""
    policy: Rules = field(default_factory=Rules)
    secrets: dict[str, SecretSource] = field(default_factory=dict)
    backends: dict[str, dict[str, Any]] = field(default_factory=dict)
    hosts: dict[str, HostOptions] = field(default_factory=dict)
    tui: TuiOptions = field(default_factory=TuiOptions)
    logs: LogOptions = field(default_factory=LogOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    recording: RecordingOptions = field(default_factory=RecordingOptions)
    shell: ShellOptions = field(default_factory=ShellOptions)
    alerts: AlertOptions = field(default_factory=AlertOptions)
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    api: ApiOptions = field(default_factory=ApiOptions)
    mcp: McpOptions = field(default_factory=McpOptions)
    microsandbox: MicrosandboxOptions = field(default_factory=MicrosandboxOptions)
    a3s_box: A3sBoxOptions = field(default_factory=A3sBoxOptions)
    serve: ServeTable = field(default_factory=ServeTable)


def load(paths: Paths, *, required: bool = False) -> Config:
    """Read the file and the environment. Raises ConfigError, with the file, the line, the key and the nearest one."""
    return checked(paths.config_file, _read(paths.config_file, required=required))


def checked(path: Path, text: str) -> Config:
    """Return the configuration that this text of the file gives, with the environment. Raises ConfigError as `load`."""
    data = _parsed(path, text)
    where = str(path)
    for key, value in _environment().items():
        _put(data, key.lower().split("__"), value)
        where = f"{path} with {PREFIX}{key}"
    try:
        return _checked(data, where)
    except ConfigError as error:
        if line := line_of(text, error.message.removeprefix(where)):
            error.message = error.message.replace(where, f"{where}, line {line}", 1)
            error.args = (error.message,)
        raise


def _checked(data: dict[str, Any], where: str) -> Config:
    _refuse_unknown(data, Config, "", where)
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}", hint="docs/configuration.md lists each key and its type") from None
    _check(config, where)
    return config


def _read(path: Path, *, required: bool) -> str:
    try:
        refuse_strangers("the configuration", path)
        return (_bytes(path) if required else read_own(path, LONGEST, follow=True)).decode("utf-8")
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path} does not exist", hint="name a config file that exists") from None
        return ""
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint=f"see its owner and mode: ls -ld {path}"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML, in UTF-8") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML, in UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: it is nested too deep", hint="it must be TOML, in UTF-8") from None


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise OSError(errno.EFBIG, f"it is longer than {LONGEST >> 20} MiB")
    return data


def refuse_strangers(label: str, path: Path) -> None:
    """Raise ConfigError if another user of this machine could change what is there, because it decides what is run."""
    if reason := another_hand(path):
        raise ConfigError(
            f"{label} {path} is not used: {reason}", hint="it and its folders must be yours: chown, chmod go-w"
        )


def _environment() -> dict[str, Any]:
    """``SANDBOX_CONSOLE_POLICY__READ_ONLY=true`` is ``policy.read_only``; the value is TOML, else text."""
    found: dict[str, Any] = {}
    for name, text in os.environ.items():
        key = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and ("__" in key or key == "BACKEND"):
            try:
                found[key] = tomllib.loads(f"v = {text}")["v"]
            except tomllib.TOMLDecodeError:
                found[key] = text
    return found


def is_setting(variable: str) -> bool:
    """Whether an environment variable is a key of the configuration, as ``SANDBOX_CONSOLE_TUI__THEME`` is."""
    table, inner, _ = variable.removeprefix(PREFIX).partition("__")
    if not variable.startswith(PREFIX):
        return False
    return table.lower() in Config.__struct_fields__ if inner else table == "BACKEND"


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            return  # the wrong type is reported by the decoding
        data = inner
    data[path[-1]] = value


def _refuse_unknown(data: Mapping[str, Any], kind: Any, prefix: str, where: str) -> None:
    types_ = typing.get_type_hints(kind)
    hints = {one.encode_name: types_[one.name] for one in msgspec.structs.fields(kind)}
    known = set(hints)
    for key, value in data.items():
        if key not in known:
            near = nearest(key, known)
            hint = f"did you mean {prefix}{near}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}: unknown key {prefix}{key}", hint=hint)
        if not isinstance(value, Mapping):
            continue
        inner = hints[key]
        if _is_table(inner):
            _refuse_unknown(value, inner, f"{prefix}{key}.", where)
        elif isinstance(inner, types.GenericAlias) and _is_table(entry := inner.__args__[1]):
            for name, table in value.items():
                if isinstance(table, Mapping):
                    _refuse_unknown(table, entry, f"{prefix}{key}.{name}.", where)


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _check(config: Config, where: str) -> None:
    for name, source in config.secrets.items():
        if text := problem(source):
            raise ConfigError(f"{where}: secrets.{name}: {text}")
    for name in config.templates:
        if text := template_problem(config.templates, name):
            raise ConfigError(f"{where}: templates.{name}: {text}")
    for name in dict.fromkeys(
        [
            config.api.template,
            *config.api.allow,
            *config.mcp.templates,
            config.microsandbox.template,
            config.a3s_box.template,
        ]
    ):
        if name and name not in config.templates:
            raise ConfigError(f"{where}: there is no [templates.{name}]", hint="add it, or leave its name out")
    for pattern in config.policy.egress or ():
        try:
            hosts.parse(pattern, allow_ip=config.policy.egress_ip)
        except ValueError as error:
            raise ConfigError(f"{where}: policy.egress: {error}") from None
    _check_hosts(config, where)
    _check_logs(config.logs, where)
    _check_alerts(config, where)
    if config.recording.keep_mib < config.recording.max_mib:
        raise ConfigError(f"{where}: recording.keep_mib is less than recording.max_mib")


def _check_hosts(config: Config, where: str) -> None:
    if wrong := host_options.problem(config.hosts):
        raise ConfigError(f"{where}: hosts.{wrong[0]}: {wrong[1]}", hint="docs/fleet.md has examples")


def _check_alerts(config: Config, where: str) -> None:
    for key, text, hint in alert_options.problems(config.alerts, config.secrets):
        raise ConfigError(f"{where}: alerts.{key}: {text}", hint=hint)


def _check_logs(options: LogOptions, where: str) -> None:
    for name, rule in options.highlight.items():
        from sandbox_console.logs.pattern import compile_pattern  # 57 ms of CPU, for the engine of regular expressions

        try:
            compile_pattern(rule.pattern)
        except UsageError as error:
            raise ConfigError(f"{where}: logs.highlight.{name}: {error.message}", hint=error.hint) from None
