"""Reports what is really in force for a container, as read from the engine and not from the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox_console.backends.common.messages import UNCOUNTED
from sandbox_console.backends.docker import syscall_filter
from sandbox_console.backends.docker.capabilities import LOG_RATE
from sandbox_console.backends.docker.container_facts import image_facts, network_facts, state_facts, variable_facts
from sandbox_console.backends.docker.labels import EGRESS, SECRETS, WORKSPACE, WRAPPER
from sandbox_console.model.sandbox import Fact
from sandbox_console.model.spec import SandboxSpec

_MIB = 1024 * 1024


def facts(
    data: Mapping[str, Any],
    info: Mapping[str, Any],
    spec: SandboxSpec | None,
    image: Mapping[str, Any],
    published: Sequence[Fact] = (),
    lives: Sequence[Fact] = (),
) -> tuple[Fact, ...]:
    """One line for each control. The ones that people look for come first.

    ``image`` is as inspected, empty if it is gone; ``published`` are the ports that its gateway publishes, and
    ``lives`` its time limits.
    """
    host, config = data["HostConfig"], data["Config"]
    return (
        *state_facts(data),
        *image_facts(data, image),
        *_identity(config),
        _network(host, config, spec),
        *published,
        *network_facts(data, {fact.field for fact in published}),
        *_limits(host, spec),
        *lives,
        *_walls(host),
        *_storage(data),
        Fact("runtime", str(host.get("Runtime") or info.get("DefaultRuntime", ""))),
        _log(host),
        Fact("log_rate", "unlimited", note=LOG_RATE),
        *_secrets(config),
        *variable_facts(config),
    )


def command(config: Mapping[str, Any]) -> list[str]:
    """The command line of the main process, without the shell that may read secrets before it."""
    words = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    return words[4:] if words[3:4] == [WRAPPER] else words


def _identity(config: Mapping[str, Any]) -> Iterator[Fact]:
    user = str(config.get("User") or "")
    root = user.partition(":")[0] in ("", "0", "root")
    yield Fact("user", user or "root", note="uid 0 of the container" if root else "not root")
    yield Fact("command", " ".join(command(config)))
    if config.get("WorkingDir"):
        yield Fact("workdir", str(config["WorkingDir"]))


def _network(host: Mapping[str, Any], config: Mapping[str, Any], spec: SandboxSpec | None) -> Fact:
    mode = str(host.get("NetworkMode", ""))
    token = (config.get("Labels") or {}).get(EGRESS)
    if token and mode == f"sandbox-console-{token}":
        if spec is not None and not spec.egress:
            return Fact("egress", "none", note="a network of its own with no way out; its ports are let in")
        return Fact("egress", "its gateway", note="a network of its own with no other way out")
    if mode == "none":
        return Fact("egress", "none", note="no network at all")
    return Fact("egress", f"network {mode}", note="not limited by this console", enforced=False)


def _limits(host: Mapping[str, Any], spec: SandboxSpec | None) -> Iterator[Fact]:
    memory, swap, cpus, pids = (host.get(key) or 0 for key in ("Memory", "MemorySwap", "NanoCpus", "PidsLimit"))
    if memory:
        yield Fact("memory_mib", str(memory // _MIB), note="no swap beyond it" if swap == memory else "swap beyond it")
    else:
        yield _unset("memory_mib", spec is not None and spec.memory_mib is not None)
    if cpus:
        yield Fact("cpus", f"{cpus / 1e9:g}", note="CFS quota")
    else:
        yield _unset("cpus", spec is not None and spec.cpus is not None)
    yield Fact("pids", str(pids)) if pids > 0 else _unset("pids", spec is not None)


def _unset(field: str, requested: bool) -> Fact:
    if requested:
        return Fact(field, "not enforced", note="this engine's kernel cannot limit it", enforced=False)
    return Fact(field, "unlimited", note="not asked for")


def _walls(host: Mapping[str, Any]) -> Iterator[Fact]:
    if host.get("Privileged"):
        yield Fact("privileged", "yes", note="no wall: it can take over the host", enforced=False)
    dropped, added = host.get("CapDrop") or [], host.get("CapAdd") or []
    capabilities = "none" if "ALL" in dropped and not added else "the engine's default"
    if added:
        names = ", ".join(sorted(str(one).removeprefix("CAP_") for one in added))
        capabilities = f"only {names}" if "ALL" in dropped else f"the default and {names}"
    yield Fact("capabilities", capabilities)
    options = host.get("SecurityOpt") or []
    yield Fact("no_new_privileges", "yes" if any(_no_new(option) for option in options) else "no")
    yield syscall_filter.fact(options)
    yield Fact("ipc", str(host.get("IpcMode") or "shareable"))
    yield Fact("cgroup_namespace", str(host.get("CgroupnsMode") or "host"))
    yield Fact("init", "yes" if host.get("Init") else "no", note="reaps orphans and passes signals on")
    yield Fact("oom_score_adj", str(host.get("OomScoreAdj", 0)))
    for limit in host.get("Ulimits") or ():
        yield Fact(f"ulimit.{limit['Name']}", f"{limit['Soft']}:{limit['Hard']}")


def _no_new(option: str) -> bool:
    return option.startswith("no-new-privileges") and not option.endswith("false")


def _storage(data: Mapping[str, Any]) -> Iterator[Fact]:
    host = data["HostConfig"]
    yield Fact("read_only_root", "yes" if host.get("ReadonlyRootfs") else "no")
    for path, options in (host.get("Tmpfs") or {}).items():
        yield Fact(f"tmpfs {path}", options)
    for mount in data.get("Mounts") or ():
        if mount.get("Type") == "tmpfs":
            continue
        target, source = str(mount.get("Destination", "")), str(mount.get("Source", ""))
        note = "read-write" if mount.get("RW") else "read-only"
        note += _workspace_note(data, note) if target == "/workspace" else ""
        yield Fact("workspace" if target == "/workspace" else f"mount {target}", source, note=note)


def _workspace_note(data: Mapping[str, Any], access: str) -> str:
    user = str(data["Config"].get("User") or "0").partition(":")[0]
    label = (data["Config"].get("Labels") or {}).get(WORKSPACE, "")
    if label:
        return f"; {label}"
    if access != "read-write":
        return ""
    owner = "; root of the container owns what it writes there, on this host too" if user in ("0", "root") else ""
    return f"{owner}; {UNCOUNTED}"


def _log(host: Mapping[str, Any]) -> Fact:
    log = host.get("LogConfig") or {}
    options = log.get("Config") or {}
    size = f"{options['max-size']} x {options.get('max-file', '1')}" if "max-size" in options else "no limit reported"
    return Fact("log", str(log.get("Type", "")), note=size)


def _secrets(config: Mapping[str, Any]) -> Iterator[Fact]:
    names = (config.get("Labels") or {}).get(SECRETS, "")
    if names:
        yield Fact("secrets", names.replace(",", ", "), note="read from stdin at each start; not in inspect or on disk")
