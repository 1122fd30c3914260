"""Where a secret comes from: the ``[secrets.NAME]`` tables. A value is read once, as late as possible."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from sandbox_console.errors import SecretError
from sandbox_console.model import hosts
from sandbox_console.model import hosts as patterns
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.secret import Inject, ResolvedSecret
from sandbox_console.secrets import keyrings, local, program

MIN_BYTES = 8
"""Shorter values are refused, since masking them in output would hide ordinary words as well."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")

Reader = Callable[[str, str, float], Awaitable[str]]


class SecretSource(Struct, frozen=True, kw_only=True):
    """A ``[secrets.NAME]`` table: a reference to a value, never the value.

    ``hosts`` are egress patterns; ``timeout_s`` is how long a keyring or a command may take. ``inject`` "auto" means a
    placeholder if the backend supports them and hosts are named, else a variable.
    """

    source: str = field(name="from")
    inject: Inject | Literal["auto"] = "auto"
    hosts: tuple[str, ...] = ()
    timeout_s: float = 30.0

    def inject_on(self, capabilities: Capabilities) -> Inject:
        """How a backend passes the secret to a sandbox."""
        if self.inject != "auto":
            return self.inject
        return "placeholder" if self.hosts and capabilities.has(Capability.SECRET_PLACEHOLDER) else "env"

    @property
    def kind(self) -> str:
        """The word before the colon: env, file, keyring or cmd."""
        return self.source.partition(":")[0]

    @property
    def shown(self) -> str:
        """The reference as it may be shown: for a command only the program, as arguments may reveal too much."""
        kind, _, rest = self.source.partition(":")
        return f"cmd:{program.name_of(rest)}" if kind == "cmd" else self.source


class _Kind(Struct, frozen=True):
    shape: str
    problem: Callable[[str], str]
    read: Reader
    acts: bool  # reading it may run the user's programs, so it needs an action on record


_KINDS = {
    "env": _Kind("env:VARIABLE", lambda _: "", local.from_env, acts=False),
    "file": _Kind("file:PATH", lambda _: "", local.from_file, acts=False),
    "keyring": _Kind("keyring:SERVICE/USER", keyrings.problem, keyrings.read, acts=True),
    "cmd": _Kind('cmd:["PROGRAM", "ARG"]', program.problem, program.read, acts=True),
}
_KNOWN = "known sources are " + ", ".join(kind.shape for kind in _KINDS.values())


def problem(source: SecretSource) -> str:
    """What is wrong with a table, without reading the value; empty when nothing is."""
    kind, colon, rest = source.source.partition(":")
    if not colon or not rest:
        return f"from is not a source; {_KNOWN}"  # not quoted: it may be a pasted value
    if kind not in _KINDS:
        named = f"source kind {kind!r}" if kind.isalpha() and len(kind) <= 12 else "this source"
        return f"{named} is not supported; {_KNOWN}"
    if not source.timeout_s > 0:
        return f"timeout_s {source.timeout_s:g} is not above 0"
    for host in source.hosts:
        try:
            patterns.parse(host, allow_ip=True)
        except ValueError as error:
            return f"hosts: {error}"
    return _KINDS[kind].problem(rest)


def definition_problem(name: str, source: SecretSource) -> dict[str, str]:
    """What is wrong with a new table, by field (``name``, ``from``, ``hosts``); empty when nothing is.

    It is stricter than `problem`: the name must be one that a variable can have, and no field may hold a value.
    """
    from sandbox_console.secrets.leaks import looks_like  # not needed to read a configuration

    found: dict[str, str] = {}
    if not _NAME.match(name):
        found["name"] = "use letters, digits and _, beginning with a letter: GITHUB_TOKEN"
    kind, _, rest = source.source.partition(":")
    if kind == "env" and not _NAME.match(rest):
        found["from"] = "this is not a variable's name; write GITHUB_TOKEN"  # not quoted: it may be a pasted value
    elif text := problem(source):
        found["hosts" if text.startswith("hosts: ") else "from"] = text.removeprefix("hosts: ")
    for key, text in (("name", name), ("from", source.source)):
        if what := looks_like(text):
            found[key] = f"it looks like {what}; the configuration has references, never values"
    return found


def acts(source: SecretSource) -> bool:
    """Whether reading the value runs a program or may prompt the user."""
    kind = _KINDS.get(source.kind)
    return kind is not None and kind.acts


async def resolve(names: Iterable[str], sources: Mapping[str, SecretSource]) -> list[ResolvedSecret]:
    """Read the values one by one, as two prompts at once would confuse. Raises SecretError, without the value.

    If a table leaves it to the backend how the secret is passed on, `SecretSource.inject_on` decides.
    """
    return [await _resolve(name, sources) for name in names]


async def _resolve(name: str, sources: Mapping[str, SecretSource]) -> ResolvedSecret:
    source = sources.get(name)
    if source is None:
        raise SecretError(f"secret {name!r} is not defined", hint=f"define it: sandbox-console secrets add {name}")
    if text := problem(source):
        raise SecretError(f"secret {name!r}: {text}")
    kind, _, rest = source.source.partition(":")
    try:
        value = await _KINDS[kind].read(name, rest, source.timeout_s)
    except SecretError as error:
        raise SecretError(f"secret {name!r}: {error.message}", hint=error.hint) from None
    check(name, value)
    return ResolvedSecret(name, value, "env" if source.inject == "auto" else source.inject, source.hosts)


def check(name: str, value: str) -> None:
    """Raise SecretError for a value that cannot be masked in output or passed on."""
    if len(value.encode("utf-8", "surrogatepass")) < MIN_BYTES:
        raise SecretError(
            f"secret {name!r} has fewer than {MIN_BYTES} bytes, too few to be hidden in output",
            hint="use a longer value, or plain env for what is not secret",
        )
    if "\0" in value:
        raise SecretError(f"secret {name!r} has a NUL byte, which no environment can carry")


def unkept(name: str, source: SecretSource, inject: Inject, egress: Sequence[str]) -> str:
    """A sentence if nothing restricts the secret to its hosts; empty if something does, or if it has none.

    A placeholder, which only the proxy fills in, restricts it; so do a sandbox without a network, and egress rules
    within its hosts.
    """
    if not source.hosts or inject == "placeholder":
        return ""
    own = [hosts.parse(text, allow_ip=True) for text in source.hosts]
    others = [text for text in egress if not _covered(text, own)]
    if not others:
        return ""
    where = "the environment" if inject == "env" else "a file"
    return (
        f"{name} is meant for {', '.join(source.hosts)}, but in {where} it can be sent wherever egress leads: "
        f"{', '.join(others)}"
    )


def unreached(name: str, source: SecretSource, egress: Sequence[str]) -> str:
    """A sentence if the egress leads to none or only some of the secret's hosts; empty if it leads to all of them."""
    patterns = [hosts.parse(text, allow_ip=True) for text in egress if _valid(text)]
    shut = [text for text in source.hosts if not _covered(text, patterns)]
    if not shut:
        return ""
    return f"{name} is meant for {', '.join(shut)}, which egress does not allow"


def _valid(text: str) -> bool:
    try:
        hosts.parse(text, allow_ip=True)
    except ValueError:
        return False
    return True


def _covered(text: str, own: Sequence[hosts.HostPattern]) -> bool:
    try:
        pattern = hosts.parse(text, allow_ip=True)
    except ValueError:
        return False  # reported elsewhere
    return any(hosts.covers(allowed, pattern) for allowed in own)
