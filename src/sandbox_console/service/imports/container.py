"""Reads a sandbox that exists as a spec, also one that another tool made, as its backend describes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_console.errors import Unsupported
from sandbox_console.model.sandbox import Sandbox, spec_of
from sandbox_console.service.imports.imported import ANY_HOST, Imported, name_from, texts, words_of

_OF_IMAGES = frozenset({"PATH", "HOME", "HOSTNAME", "TERM", "LANG", "LC_ALL"})
_OF_TOOLS = ("com.docker.", "org.opencontainers.", "sandbox-console.", "io.", "devcontainer.", "desktop.")


def read_sandbox(sandbox: Sandbox, raw: Mapping[str, Any] | None) -> Imported:
    """A spec from a sandbox. ``raw`` is how its engine describes it, with values of secrets masked.

    Raises Unsupported if another tool made it and its backend describes nothing.
    """
    if sandbox.spec is not None:
        imported = Imported(spec_of(sandbox).to_dict())
        env = imported.fields.pop("env", {})
        for name, value in texts(env):
            imported.variable(name, value)
        return imported
    config = raw.get("Config") if raw is not None else None
    if raw is None or not isinstance(config, Mapping):
        raise Unsupported(f"{sandbox.name}: its backend does not say how it was made")
    imported = Imported({key: value for key, value in spec_of(sandbox).to_dict().items() if value is not None})
    imported.fields["name"] = name_from(sandbox.name)
    _config(imported, config)
    _host(imported, raw.get("HostConfig") or {})
    return imported


def _config(imported: Imported, config: Mapping[str, Any]) -> None:
    if words := [*words_of(config.get("Entrypoint") or []), *words_of(config.get("Cmd") or [])]:
        imported.fields["command"] = words
    for key, name in (("User", "user"), ("WorkingDir", "workdir")):
        if config.get(key):
            imported.fields[name] = str(config[key])
    for name, value in texts(config.get("Env") or []):
        if name not in _OF_IMAGES:
            imported.variable(name, value)
    for key, value in texts(config.get("Labels") or {}):
        if not key.startswith(_OF_TOOLS):
            imported.label(key, value or "")
    if imported.fields.get("env"):
        imported.leave("env", "some of the variables may be the image's own")


def _host(imported: Imported, host: Mapping[str, Any]) -> None:
    _reach(imported, host)
    if host.get("ReadonlyRootfs"):
        imported.fields["read_only_root"] = True
    for option in host.get("SecurityOpt") or []:
        imported.security("security option", str(option))
    for key, reason in (("Privileged", "a sandbox is never privileged"), ("CapAdd", "a sandbox has no capabilities")):
        if host.get(key):
            imported.leave(key, reason)
    if host.get("NetworkMode") != "none":
        imported.leave(f"network {host.get('NetworkMode') or 'unknown'}", ANY_HOST)


def _reach(imported: Imported, host: Mapping[str, Any]) -> None:
    """Its ports and its folders."""
    for port, bound in (host.get("PortBindings") or {}).items():
        for one in bound or [{}]:
            parts = [one.get("HostIp"), one.get("HostPort"), port.partition("/")[0]]
            text = ":".join(part for part in parts if part) + ("/udp" if port.endswith("/udp") else "")
            imported.port("port", text)
    for bind in host.get("Binds") or []:
        source, _, rest = str(bind).partition(":")
        target, _, options = rest.partition(":")
        imported.mount("mount", source, target, Path("/"), read_only="ro" in options.split(","))
    for mount in host.get("Mounts") or []:
        source, target = str(mount.get("Source", "")), str(mount.get("Target", ""))
        if mount.get("Type") == "bind":
            imported.mount("mount", source, target, Path("/"), read_only=bool(mount.get("ReadOnly")))
        else:
            imported.leave(f"mount {target}", "not a folder of this machine")
