"""Reads devcontainer.json (containers.dev), which is JSON with comments and commas at the end of lists, as a spec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_console.errors import UsageError
from sandbox_console.service.imports.docker_run import take_options
from sandbox_console.service.imports.imported import ANY_HOST, NO_FIELD, WORKSPACE, Imported, name_from, names_in, texts

# What is not closed ends with the file: looking for its end anew at each quote would take hours for a file of 1 MiB.
_TEXT = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
_NO_DATA = re.compile(_TEXT + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(f"({_TEXT})" + r"|,(?=\s*[}\]])", re.DOTALL)
_TAKEN = names_in(
    "name image containerEnv remoteEnv containerUser remoteUser forwardPorts appPort runArgs workspaceFolder "
    "workspaceMount $schema"
)
_WHY = {
    "build": "the image is not built: build it, and name it in image",
    "dockerFile": "the image is not built: build it, and name it in image",
    "dockerComposeFile": "import the service of that file: import compose",
    "features": "they are not installed: put them into the image",
    "mounts": "a sandbox has one workspace",
    "initializeCommand": "nothing of the file is run on this machine",
    "customizations": "it is about an editor",
}
_ENVIRONMENTS = ("containerEnv", "remoteEnv")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_READ = {"localWorkspaceFolder", "localWorkspaceFolderBasename", "containerWorkspaceFolder"}
"""Variables of the file that need no environment."""

_LATER = ("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand")


def parse_jsonc(name: str, text: str) -> Any:
    """JSON with comments as plain data. Raises UsageError."""
    bare = _NO_DATA.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    try:
        return json.loads(_LAST_COMMA.sub(lambda match: match[1] or "", bare))
    except RecursionError:
        raise UsageError(f"{name} is nested too deep") from None
    except ValueError as error:
        raise UsageError(f"{name} is not JSON with comments: {error}") from None


def read_devcontainer(path: Path, text: str) -> Imported:
    """A spec from the file. The workspace is the folder that it belongs to. Raises UsageError."""
    table = parse_jsonc(str(path), text)
    if not isinstance(table, dict):
        raise UsageError(f"{path} is not a table", hint="devcontainer.json begins with {")
    folder = path.parent.parent if path.parent.name == ".devcontainer" else path.parent
    imported = Imported()
    _drop_unread(imported, table)
    table = _local(imported, table, folder)
    imported.fields["name"] = name_from(str(table.get("name") or folder.name))
    if image := table.get("image"):
        imported.fields["image"] = str(image)
    if user := table.get("containerUser") or table.get("remoteUser"):
        imported.fields["user"] = str(user)
    for key in _ENVIRONMENTS:
        for name, value in texts(table[key] if isinstance(table.get(key), dict) else {}):
            imported.variable(name, value, key)
    for port in [*_list(table.get("forwardPorts")), *_list(table.get("appPort"))]:
        imported.port("forwardPorts", str(port))
    _workspace(imported, table, folder)
    take_options(imported, [str(word) for word in _list(table.get("runArgs"))], folder)
    imported.leave("network", ANY_HOST)
    for key in table.keys() - _TAKEN:
        reason = "run it in the sandbox: sandbox-console exec" if key in _LATER else _WHY.get(key, NO_FIELD)
        imported.leave(str(key), reason)
    return imported


def _workspace(imported: Imported, table: Mapping[str, Any], folder: Path) -> None:
    if "workspaceMount" in table and not table["workspaceMount"]:
        return
    if "workspaceMount" in table:
        imported.leave("workspaceMount", "the folder of the file is the workspace, at /workspace")
    elif str(table.get("workspaceFolder") or WORKSPACE).rstrip("/") != WORKSPACE:
        imported.leave(f"workspaceFolder {table['workspaceFolder']}", "the workspace is at /workspace")
    imported.fields["workspace"] = str(folder.resolve())


def _drop_unread(imported: Imported, table: dict[str, Any]) -> None:
    """Leave out variables that are made of others, which are not read: an empty one would hide the image's own."""
    for key in _ENVIRONMENTS:
        if not isinstance(given := table.get(key), dict):
            continue
        unread = [name for name, value in given.items() if set(_VARIABLE.findall(str(value))) - _READ]
        for name in unread:
            imported.variable(str(name), None, key)
        table[key] = {name: value for name, value in given.items() if name not in unread}


def _local(imported: Imported, value: Any, folder: Path) -> Any:
    """The value with the folder's variables replaced. Those of the environment are not read."""
    match value:
        case dict():
            return {key: _local(imported, one, folder) for key, one in value.items()}
        case list():
            return [_local(imported, one, folder) for one in value]
        case str() if "${" in value:
            return _VARIABLE.sub(lambda match: _named(imported, match[1], folder), value)
    return value


def _named(imported: Imported, name: str, folder: Path) -> str:
    match name:
        case "localWorkspaceFolder":
            return str(folder)
        case "localWorkspaceFolderBasename":
            return folder.name
        case "containerWorkspaceFolder":
            return WORKSPACE
    imported.leave(f"${{{name}}}", "this variable is not read")
    return ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
