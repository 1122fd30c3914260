"""The rules that an operator sets in the ``[policy]`` table of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Stance = Literal["allow", "ask", "deny"]
Publish = Literal["none", "loopback", "any"]
Recorded = Literal["shell", "exec"]


class Rules(Struct, frozen=True, kw_only=True):
    """What may be done. The defaults let a developer work, and ask before touching what others made.

    A sandbox that requests no egress gets none, whatever is set here. ``egress`` is the ceiling of what a sandbox may
    request (None: any host). Caps apply to requested limits; None means no cap. ``images`` are shell patterns
    (``python:*``). ``publish`` says at which addresses of a host ports may be published: none, those that only the host
    itself reaches, or any. ``seccomp_off``, ``ptrace`` and ``nested_userns`` let a spec request no filter of system
    calls, a filter that allows debuggers, or user namespaces in the sandbox. ``enter_without_secrets`` says whether a
    console that cannot read one of a sandbox's secrets may enter it; the command then runs without the secret, whose
    value cannot be masked. ``home_workspace`` lets a home folder be a workspace. ``keep_shells`` lets a
    shell outlive the console that opened it. ``record`` names what must be recorded, or it is refused: shells,
    commands, or both. While a secret of a keyring or a
    program has not been read, words of at least ``hash_words_from`` bytes are written to the audit log as keyed hashes:
    for ``"any"`` secret of the configuration, or only for the sandbox's ``"own"``.
    """

    read_only: bool = False
    foreign: Stance = "ask"
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    egress: tuple[str, ...] | None = None
    egress_ip: bool = False
    publish: Publish = "loopback"
    images: tuple[str, ...] = ("*",)
    max_cpus: float | None = None
    max_memory_mib: int | None = None
    max_pids: int | None = None
    require_limits: bool = False
    seccomp_off: bool = False
    ptrace: bool = False
    nested_userns: bool = False
    enter_without_secrets: bool = True
    home_workspace: bool = False
    keep_shells: bool = True
    record: tuple[Recorded, ...] = ()
    hash_words_from: Annotated[int, Meta(ge=1)] = 12
    hash_words_for: Literal["any", "own"] = "any"


class Allow(Struct, frozen=True):
    """The action may be carried out."""


class Ask(Struct, frozen=True):
    """The action needs a person's confirmation: by typing ``token`` if one is set, else by a plain yes."""

    reason: str
    rule: str
    token: str = ""


class Deny(Struct, frozen=True):
    """The action is refused. ``capability`` is set if the backend lacks it, not if the rules forbid the action."""

    reason: str
    rule: str
    capability: str = ""
    hint: str = ""


Decision = Allow | Ask | Deny
