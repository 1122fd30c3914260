"""Reads the words of a ``docker run`` line. Nothing is run, expanded or looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox_console.errors import UsageError
from sandbox_console.service.imports.imported import ANY_HOST, Imported, names_in

_FLAGS = names_in(
    "detach help init interactive no-healthcheck oom-kill-disable privileged publish-all quiet read-only rm "
    "sig-proxy tty use-api-socket"
)
"""The options of `docker run` (28) without a value."""

_VALUES = names_in(
    "add-host annotation attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns cidfile "
    "cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus "
    "cpuset-mems detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps "
    "device-write-iops disable-content-trust dns dns-opt dns-option dns-search domainname entrypoint env "
    "env-file expose gpus group-add health-cmd health-interval health-retries health-start-interval "
    "health-start-period health-timeout hostname io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory "
    "label label-file link link-local-ip log-driver log-opt mac-address memory memory-reservation memory-swap "
    "memory-swappiness mount name net net-alias network network-alias oom-score-adj pid pids-limit platform "
    "publish pull restart runtime security-opt shm-size stop-signal stop-timeout storage-opt sysctl tmpfs ulimit "
    "user userns uts volume volume-driver volumes-from workdir"
)
_SHORT = {
    "a": "attach", "c": "cpu-shares", "d": "detach", "e": "env", "h": "hostname", "i": "interactive", "l": "label",
    "m": "memory", "p": "publish", "P": "publish-all", "q": "quiet", "t": "tty", "u": "user", "v": "volume",
    "w": "workdir",
}  # fmt: skip
_NOTHING = frozenset(
    {"detach", "interactive", "tty", "init", "quiet", "sig-proxy", "attach", "pull", "help", "entrypoint"}
)
"""Options that change nothing about a sandbox, or are read elsewhere."""

_WHY = {
    "rm": "a sandbox stays until it is removed; max_duration_s ends it",
    "privileged": "a sandbox is never privileged",
    "cap-add": "a sandbox has no capabilities of the kernel",
    "device": "a sandbox has no devices of the host",
    "gpus": "a sandbox has no devices of the host",
    "env-file": "the file is not read: give its variables with --env",
    "restart": "a sandbox is not restarted by itself",
    "publish-all": "name the ports: --publish",
}
_LONGEST = 10_000


def read_docker_run(words: Sequence[str], folder: Path) -> Imported:
    """A spec from the words after ``docker run``, which may begin with these. Raises UsageError.

    ``folder`` is what relative paths are relative to.
    """
    if len(words) > _LONGEST:
        raise UsageError(f"the line has {len(words)} words; {_LONGEST} are the most")
    words = _after_run(words)
    options, rest = _split(words)
    if not rest:
        raise UsageError("the line names no image", hint="docker run [OPTIONS] IMAGE [COMMAND]")
    imported = Imported({"image": rest[0]})
    entry = [value for name, value in options if name == "entrypoint" and value]
    command = [*entry[-1:], *rest[1:]]
    if command:
        imported.fields["command"] = command
    for name, value in sorted(options, key=lambda one: one[0] in ("volume", "mount")):  # a folder needs the workdir
        _take(imported, name, value, folder)
    if not any(name in ("network", "net") for name, _ in options):
        imported.leave("network", ANY_HOST)
    return imported


def take_options(imported: Imported, words: Sequence[str], folder: Path) -> None:
    """Add the options of a list without an image, as in ``runArgs``. Raises UsageError."""
    options, rest = _split(words)
    for name, value in options:
        _take(imported, name, value, folder)
    for word in rest:
        imported.leave(word, "it is not an option")


def _after_run(words: Sequence[str]) -> Sequence[str]:
    """The words without the program and its verb."""
    rest = list(words)
    if rest and rest[0].rpartition("/")[2] in ("docker", "podman", "nerdctl"):
        rest = rest[1:]
        if rest[:1] == ["container"]:
            rest = rest[1:]
        if rest[:1] not in (["run"], ["create"]):
            raise UsageError("this is no docker run line", hint="docker run [OPTIONS] IMAGE [COMMAND]")
        rest = rest[1:]
    return rest


def _split(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options with their values, and what follows them. Raises UsageError for an unknown option."""
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            break
        if len(word) < 2 or not word.startswith("-"):
            at -= 1
            break
        for name, value in _option(word):
            if name in _FLAGS:
                options.append((name, value or "true"))
            elif value is not None:
                options.append((name, value))
            elif at < len(words):
                options.append((name, words[at]))
                at += 1
            else:
                raise UsageError(f"--{name} has no value")
    return options, list(words[at:])


def _option(word: str) -> Iterator[tuple[str, str | None]]:
    """The options in one word: ``--name=value``, or several letters of which the last may have a value."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name not in _FLAGS | _VALUES:
            raise UsageError(f"docker run has no option --{name}", hint="is it spelt as in docker run --help?")
        yield name, value if equals else None
        return
    for at, letter in enumerate(word[1:], 2):
        name = _SHORT.get(letter, "")
        if not name:
            raise UsageError(f"docker run has no option -{letter}", hint="is it spelt as in docker run --help?")
        if name in _FLAGS:
            yield name, None
            continue
        rest = word[at:].removeprefix("=")
        yield name, rest or None
        return


def _take(imported: Imported, name: str, value: str, folder: Path) -> None:  # noqa: C901, PLR0912 - a case an option
    option = f"--{name}"
    if name in _FLAGS and value in ("false", "0"):
        return
    match name:
        case "name":
            imported.fields["name"] = value
        case "env":
            key, equals, text = value.partition("=")
            imported.variable(key, text if equals else None, option)
        case "label":
            imported.label(value.partition("=")[0], value.partition("=")[2])
        case "publish":
            imported.port(option, value)
        case "user" | "runtime":
            imported.fields[name] = value
        case "workdir":
            imported.fields["workdir"] = value
        case "cpus":
            imported.number("cpus", option, value, float)
        case "memory":
            imported.memory(option, value)
        case "pids-limit":
            imported.number("pids", option, value, int)
        case "read-only":
            imported.fields["read_only_root"] = True
        case "security-opt":
            imported.security(option, value)
        case "volume":
            _volume(imported, option, value, folder)
        case "mount":
            _mount(imported, option, value, folder)
        case "network" | "net":
            if value != "none":
                imported.leave(f"{option} {value}", ANY_HOST)
        case _ if name not in _NOTHING:
            imported.leave(
                option if name in _FLAGS else f"{option} {value}", _WHY.get(name, "a spec has no field for it")
            )


def _volume(imported: Imported, option: str, value: str, folder: Path) -> None:
    parts = value.split(":")
    if len(parts) < 2:
        imported.leave(f"{option} {value}", "a volume without a folder: what is written there is lost with the sandbox")
        return
    options = parts[2].split(",") if len(parts) > 2 else []
    imported.mount(option, parts[0], parts[1], folder, read_only="ro" in options)


def _mount(imported: Imported, option: str, value: str, folder: Path) -> None:
    given = dict(part.partition("=")[::2] for part in value.split(","))
    source = given.get("source", given.get("src", ""))
    target = given.get("target", given.get("dst", given.get("destination", "")))
    if given.get("type", "volume") != "bind":
        imported.leave(f"{option} {value}", "not a folder of this machine")
        return
    read_only = any(given.get(key, "false") in ("", "true", "1") for key in ("readonly", "ro"))
    imported.mount(option, source, target, folder, read_only=read_only)
