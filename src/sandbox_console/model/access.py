"""What a person may do and see: a role, and labels that limit it to some sandboxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from msgspec import Struct

from sandbox_console.errors import UsageError

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")


class Access(Struct, frozen=True):
    """The rights of one person.

    A viewer changes nothing, an operator works with sandboxes, and an admin may do all that the policy allows. With
    ``labels`` only sandboxes that have all of them exist for this person. ``folders`` says that a caller cannot choose
    which folders of the console's machine a sandbox gets, so that no role is needed for them.
    """

    role: Role = "admin"
    labels: Mapping[str, str] = {}
    folders: bool = False

    def sees(self, labels: Mapping[str, str]) -> bool:
        """Whether a sandbox with these labels exists for this person."""
        return all(labels.get(key) == value for key, value in self.labels.items())

    @property
    def described(self) -> str:
        """The role and the labels, for people: ``operator of team=search``."""
        pairs = ", ".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.role} of {pairs}" if pairs else self.role


FULL = Access()
"""The rights of whoever runs the console itself, and of the console's own work."""

NONE = Access("viewer", {"": ""})
"""The rights of somebody who was removed: no sandbox has an empty label."""


def checked_role(text: str) -> Role:
    """The role of this name. Raises UsageError."""
    for role in ROLES:
        if role == text:
            return role
    raise UsageError(f"--role: {text!r} is not a role", hint=f"one of {', '.join(ROLES)}")


def checked_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Labels from ``KEY=VALUE`` words. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not key or not sign or found.get(key, value) != value:
            raise UsageError(f"--label: {pair!r} is not KEY=VALUE, once for each key", hint="as in team=search")
        found[key] = value
    return found


class AccessSource(Protocol):
    """Looks up what a person may do at this moment."""

    def __call__(self) -> Access:
        """The rights now."""
        ...


def full() -> Access:
    """The source of all rights."""
    return FULL


class _Process:
    """Whose rights hold where nobody is named: those of the person that this process works for."""

    source: AccessSource = staticmethod(full)


_source: ContextVar[AccessSource | None] = ContextVar("sandbox_console_access", default=None)


def access() -> Access:
    """The rights of whoever acts in this context, looked up now."""
    return (_source.get() or _Process.source)()


def process_access() -> Access:
    """The rights of the person that this process works for, whoever acts in this context."""
    return _Process.source()


def work_for(source: AccessSource) -> None:
    """Give this process the rights of one person, for good."""
    _Process.source = staticmethod(source)


@contextmanager
def limited_to(source: AccessSource) -> Iterator[None]:
    """Give the code in this block, and tasks that are created in it, these rights."""
    before = _source.set(source)
    try:
        yield
    finally:
        _source.reset(before)
