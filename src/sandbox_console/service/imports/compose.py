"""Reads one service of a compose file, by the rules of the compose-spec, as a spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.errors import NotFound, UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.secret import SECRET_WORD
from sandbox_console.service.imports.imported import ANY_HOST, NO_FIELD, Imported, name_from, names_in, texts, words_of
from sandbox_console.service.imports.interpolation import interpolated
from sandbox_console.service.imports.safe_yaml import parse_yaml

ReadText = Callable[[Path], str]
"""Reads a small file beside the compose file. Raises UsageError, Conflict."""

_REFUSED = ("extends", "include")
_SILENT = ("container_name", "init", "tty", "stdin_open", "attach", "scale", "expose", "x-")
_WHY = {
    "build": "the image is not built: build it, and name it in image",
    "depends_on": "a sandbox waits for no other",
    "networks": ANY_HOST,
    "privileged": "a sandbox is never privileged",
    "cap_add": "a sandbox has no capabilities of the kernel",
    "devices": "a sandbox has no devices of the host",
    "restart": "a sandbox is not restarted by itself",
    "secrets": "define each in [secrets] of the configuration, and add its name to secrets",
    "configs": "put them into the image or the workspace",
}


def read_compose(path: Path, text: str, service: str, read: ReadText, environ: Mapping[str, str]) -> Imported:
    """A spec from a service, which may be left out if there is only one.

    Variables are looked up in ``.env`` beside the file and in ``environ``; those that sound secret are not. Raises
    UsageError, also for ``extends`` and ``include``; NotFound for an unknown service.
    """
    document = parse_yaml(str(path), text)
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or not services:
        raise UsageError(f"{path} has no services", hint="a compose file has a table services")
    if "include" in document:
        raise UsageError(f"{path}: include is not supported", hint="name the file with the service")
    name = _chosen(path, [str(key) for key in services], service)
    table = services.get(name)
    if not isinstance(table, dict):
        raise UsageError(f"{path}: the service {name!r} is not a table")
    for key in _REFUSED:
        if key in table:
            raise UsageError(f"{path}: {name}: {key} is not supported", hint="write out what it would add")
    imported = Imported()
    variables = _Variables(imported, _env_file(read, path.parent / ".env", required=False), environ)
    _take(imported, name, interpolated(table, variables.get), path.absolute().parent, read)
    return imported


class _Variables:
    """Where variables come from. What is looked up and not taken is noted once."""

    def __init__(self, imported: Imported, file: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._found, self._file, self._environ = imported, file, environ
        self._noted: set[str] = set()

    def get(self, name: str) -> str | None:
        """A variable's value; None if it is not set or sounds secret."""
        value = self._environ.get(name, self._file.get(name))
        if value is not None and SECRET_WORD.search(name):
            if name not in self._noted:
                self._found.leave(f"${name}", "it sounds secret, so its value is not read: define it in [secrets]")
                self._noted.add(name)
            return None
        return value


def _chosen(path: Path, names: list[str], service: str) -> str:
    if not service and len(names) == 1:
        return names[0]
    if service in names:
        return service
    known = ", ".join(names[:20])
    if not service:
        raise UsageError(f"{path} has {len(names)} services: {known}", hint="name one of them")
    near = nearest(service, names)
    hint = f"did you mean {near}?" if near else f"it has {known}"
    raise NotFound(f"{path} has no service {service!r}", hint=hint)


def _take(imported: Imported, name: str, table: Mapping[str, Any], folder: Path, read: ReadText) -> None:
    imported.fields["name"] = name_from(str(table.get("container_name") or name))
    _basics(imported, table)
    _variables(imported, table, folder, read)
    for key, value in texts(_listed(table.get("labels"))):
        imported.label(key, value or "")
    _limits(imported, table)
    for port in _list(table.get("ports")):
        _port(imported, port)
    for volume in _list(table.get("volumes")):
        _volume(imported, volume, folder)
    for option in _list(table.get("security_opt")):
        imported.security("security_opt", str(option))
    if table.get("network_mode") != "none":
        imported.leave("network", ANY_HOST)
    for key in table.keys() - _TAKEN:
        if not str(key).startswith(_SILENT):
            imported.leave(str(key), _WHY.get(str(key), NO_FIELD))


def _basics(imported: Imported, table: Mapping[str, Any]) -> None:
    for key, name in (("image", "image"), ("working_dir", "workdir"), ("user", "user"), ("runtime", "runtime")):
        if table.get(key):
            imported.fields[name] = str(table[key])
    entry, command = table.get("entrypoint"), table.get("command")
    if words := [*(words_of(entry) if entry else []), *(words_of(command) if command else [])]:
        imported.fields["command"] = words
    if table.get("read_only") is True:
        imported.fields["read_only_root"] = True


_TAKEN = names_in(
    "image entrypoint command environment env_file labels working_dir user runtime read_only cpus mem_limit "
    "pids_limit deploy ports volumes security_opt network_mode"
)


def _variables(imported: Imported, table: Mapping[str, Any], folder: Path, read: ReadText) -> None:
    values: dict[str, str | None] = {}
    for entry in _list(table.get("env_file")):
        name = str(entry.get("path", "") if isinstance(entry, Mapping) else entry)
        required = not (isinstance(entry, Mapping) and entry.get("required") is False)
        path = Path(os.path.normpath(folder / name))
        if not _within(path, folder):
            imported.leave(f"env_file {name}", "it is outside the folder of the compose file")
            continue
        values |= _env_file(read, path, required=required)
    values |= dict(texts(_listed(table.get("environment"))))
    for key, value in values.items():
        imported.variable(key, value, "environment")


def _within(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder. A name that no file can have, with a NUL or half a character, does not."""
    try:
        return b"\0" not in os.fsencode(path) and path.resolve().is_relative_to(folder.resolve())
    except UnicodeEncodeError:
        return False


def _env_file(read: ReadText, path: Path, *, required: bool) -> dict[str, str]:
    """KEY=VALUE lines; values may be quoted. Raises UsageError for a missing file that is required."""
    if not required and not path.is_file():
        return {}
    found = {}
    for line in read(path).splitlines():
        key, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or key.startswith("#"):
            continue
        value = value.strip()
        if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1:
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        found[key.strip()] = value
    return found


def _limits(imported: Imported, table: Mapping[str, Any]) -> None:
    deploy = table.get("deploy")
    resources = deploy.get("resources") if isinstance(deploy, Mapping) else None
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    limits = limits if isinstance(limits, Mapping) else {}
    if (cpus := limits.get("cpus", table.get("cpus"))) is not None:
        imported.number("cpus", "cpus", cpus, float)
    if (memory := limits.get("memory", table.get("mem_limit"))) is not None:
        imported.memory("memory", memory)
    if (pids := limits.get("pids", table.get("pids_limit"))) is not None:
        imported.number("pids", "pids", pids, int)
    if isinstance(deploy, Mapping):
        for key in deploy.keys() - {"resources"}:
            imported.leave(f"deploy.{key}")


def _port(imported: Imported, port: object) -> None:
    if not isinstance(port, Mapping):
        imported.port("ports", str(port))
        return
    parts = [port.get("host_ip"), port.get("published"), port.get("target")]
    protocol = f"/{port['protocol']}" if port.get("protocol") else ""
    imported.port("ports", ":".join(str(part) for part in parts if part is not None) + protocol)


def _volume(imported: Imported, volume: object, folder: Path) -> None:
    if isinstance(volume, Mapping):
        source, target = str(volume.get("source", "")), str(volume.get("target", ""))
        if volume.get("type") != "bind":
            imported.leave(f"volumes {source}:{target}", "not a folder of this machine")
            return
        imported.mount("volumes", source, target, folder, read_only=volume.get("read_only") is True)
        return
    parts = str(volume).split(":")
    if len(parts) < 2:
        imported.leave(f"volumes {volume}", "a volume without a folder: what is written there is lost with the sandbox")
        return
    imported.mount("volumes", parts[0], parts[1], folder, read_only="ro" in ",".join(parts[2:]).split(","))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _listed(value: object) -> Any:
    return value if isinstance(value, (list, dict)) else []
