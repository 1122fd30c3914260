"""The rules that an operator sets in the ``[policy]`` table of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Stance = Literal["allow", "ask", "deny"]
Publish = Literal["none", "loopback", "any"]


class Rules(Struct, frozen=True, kw_only=True):
    """What may be done. The defaults let a developer work and ask before touching what others made.

    A sandbox that requests no egress gets none, whatever is set here; ``egress`` is the ceiling of
    what one may request (None: any host). Caps apply to what is requested; None is no cap.
    ``images`` are shell patterns (``python:*``). ``publish`` is at which addresses of a host the ports of a sandbox may
    be published: none, those that only the host itself reaches, or any. ``seccomp_off``, ``ptrace`` and
    ``nested_userns`` let a spec ask for no filter of system calls, for one under which debuggers work, or for user
    namespaces in the sandbox. ``enter_without_secrets`` is whether a sandbox
    may be entered by a console that cannot read a secret of it: it goes without, and cannot mask the value.
    ``home_workspace`` lets a home folder be a workspace. While a keyring's or a program's secret was not read, words of
    ``hash_words_from`` bytes and more are in the audit log as keyed hashes: for ``"any"`` secret of the
    configuration, or for the sandbox's ``"own"``.
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
    hash_words_from: Annotated[int, Meta(ge=1)] = 12
    hash_words_for: Literal["any", "own"] = "any"


class Allow(Struct, frozen=True):
    """Go on."""


class Ask(Struct, frozen=True):
    """Go on if a person confirms, by ``token`` if one is set, else by a plain yes."""

    reason: str
    rule: str
    token: str = ""


class Deny(Struct, frozen=True):
    """Do not. ``capability`` is set if the backend lacks something, rather than the rules forbidding it."""

    reason: str
    rule: str
    capability: str = ""
    hint: str = ""


Decision = Allow | Ask | Deny
