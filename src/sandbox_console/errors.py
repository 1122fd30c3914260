"""One tree of errors: each class has a stable code, an exit code, a message and a hint.

::

    ConsoleError                error            1
     ├─ UsageError              usage            2   the caller's words are off
     │   ├─ InvalidSpec         invalid_spec     2   carries a problem for each field
     │   ├─ ConfigError         config           2
     │   ├─ SecretError         secret           1   a secret cannot be resolved
     │   └─ InputFailed         input_failed     2   what the caller gave as input could not be read
     ├─ NotFound                not_found        3
     │   └─ Ambiguous           ambiguous        2   carries the candidates
     ├─ Denied                  denied           4
     │   └─ NeedsConfirmation   needs_confirmation 4
     ├─ BackendUnreachable      unreachable      5
     ├─ AuditUnavailable        audit_unavailable 6
     ├─ Conflict                conflict         7
     │   ├─ SandboxEnded        sandbox_ended    7   the sandbox ended while a command ran in it
     │   └─ NoRoom              no_room          7   every host that may have the sandbox is full
     ├─ Unsupported             unsupported      8
     ├─ TimedOut                timed_out        9
     └─ BackendError            backend          1   the provider failed, not the guest

A guest command's failure is a result, never one of these.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs 8 ms of each command
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar


class ConsoleError(Exception):
    """An error of the console, worded so that a person can act on it.

    ``message`` names the thing and the cause, ``hint`` the next step. The gate sets ``audit_id`` if the failure has a
    row in the audit log.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.audit_id: int | None = None

    def __str__(self) -> str:
        return self.message  # the gate masks it after the error was made

    def as_dict(self) -> dict[str, Any]:
        """The error as ``--json`` prints it."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "audit_id": self.audit_id}


class UsageError(ConsoleError):
    """The arguments are wrong; nothing was tried."""

    code = "usage"
    exit_code = 2


class InvalidSpec(UsageError):
    """A spec is invalid; ``problems`` maps the name of a field to what is wrong with it."""

    code = "invalid_spec"

    def __init__(self, problems: Mapping[str, str], *, hint: str = "") -> None:
        super().__init__("; ".join(f"{field}: {text}" for field, text in problems.items()), hint=hint)
        self.problems = dict(problems)

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"problems": self.problems}


class ConfigError(UsageError):
    """The configuration file, environment or options are invalid."""

    code = "config"


class SecretError(ConsoleError):
    """A secret cannot be resolved. The message never contains a value."""

    code = "secret"


class InputFailed(UsageError):
    """The caller's input could not be read while it was passed on; the command that read it was ended."""

    code = "input_failed"


class NotFound(ConsoleError):
    """A sandbox, image, row or file does not exist."""

    code = "not_found"
    exit_code = 3


class Ambiguous(UsageError):
    """A name fits more than one sandbox; ``candidates`` are unique names."""

    code = "ambiguous"

    def __init__(self, message: str, candidates: Sequence[str], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(candidates)

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"candidates": self.candidates}


class Denied(ConsoleError):
    """The policy forbids the action; ``rule`` is the name of the rule that decided."""

    code = "denied"
    exit_code = 4

    def __init__(self, message: str, *, rule: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = rule

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"rule": self.rule}


class NeedsConfirmation(Denied):
    """The policy requires a confirmation that was not given; ``token`` is what to confirm."""

    code = "needs_confirmation"

    def __init__(self, message: str, *, token: str, rule: str = "", hint: str = "") -> None:
        super().__init__(message, rule=rule, hint=hint)
        self.token = token


class BackendUnreachable(ConsoleError):
    """The backend does not answer."""

    code = "unreachable"
    exit_code = 5


class AuditUnavailable(ConsoleError):
    """The audit log cannot be written, so nothing is changed."""

    code = "audit_unavailable"
    exit_code = 6


class Conflict(ConsoleError):
    """The name is taken, or the sandbox is not in a state that allows this."""

    code = "conflict"
    exit_code = 7


class SandboxEnded(Conflict):
    """The sandbox ended, or was removed, while a command ran in it, so the command has no result of its own."""

    code = "sandbox_ended"


class NoRoom(Conflict):
    """Every host on which the sandbox may be made has as many running ones as it may have."""

    code = "no_room"


class Unsupported(ConsoleError):
    """The backend cannot do this here; the message names the capability and the reason."""

    code = "unsupported"
    exit_code = 8


class TimedOut(ConsoleError):
    """The given time ran out."""

    code = "timed_out"
    exit_code = 9


class BackendError(ConsoleError):
    """The provider failed: its engine, runtime or files, not the guest's command."""

    code = "backend"
