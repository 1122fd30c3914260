"""Checks the permit of every changing call to a backend, also of a third-party one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast

from sandbox_console.backends import abilities
from sandbox_console.backends.base import Backend
from sandbox_console.model.action import Permit


def need(permit: object) -> None:
    """Raise TypeError if it is not a Permit."""
    if not isinstance(permit, Permit):
        raise TypeError("a changing call needs a Permit")


def _takes_permit(protocol: object) -> set[str]:
    methods = vars(protocol).items()
    return {name for name, method in methods if getattr(method, "__annotations__", {}).get("permit") == "Permit"}


CHANGING = frozenset(
    name
    for protocol in (Backend, *(one for one in vars(abilities).values() if isinstance(one, type)))
    for name in _takes_permit(protocol)
)
"""The methods of ``base`` and ``abilities`` that take a Permit."""


class _Permitted:
    """A backend whose changing methods check their permit before the backend is reached."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.host = backend.name, backend.host

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)  # raises AttributeError for a missing ability, which isinstance relies on
        return partial(_checked(name), self) if name in CHANGING else found


def permitted(backend: Backend) -> Backend:
    """Return the backend; every changing method raises TypeError if it is called without a Permit."""
    own = frozenset(name for name, value in getattr(backend, "__dict__", {}).items() if callable(value))
    return cast(Backend, _permitted_class(type(backend), own)(backend))


@lru_cache(maxsize=64)  # 100 hosts of one backend share a class, as making one takes 1 ms
def _permitted_class(kind: type, own: frozenset[str]) -> Callable[[Backend], object]:
    methods = {name for name in dir(kind) if callable(getattr(kind, name, None))} | own
    # It is a class of its own with all methods: from Python 3.12 on, a Protocol is looked up in the class.
    members: dict[str, object] = {
        name: _checked(name) if name in CHANGING else _passed(name) for name in methods if not name.startswith("_")
    }
    return type(f"Permitted{kind.__name__}", (_Permitted,), members)


def _checked(name: str) -> Callable[..., Any]:
    def method(self: _Permitted, *args: Any, **named: Any) -> Any:
        need(args[0] if args else named.get("permit"))
        return getattr(self._backend, name)(*args, **named)

    return method


def _passed(name: str) -> Callable[..., Any]:
    def method(self: _Permitted, *args: Any, **named: Any) -> Any:
        return getattr(self._backend, name)(*args, **named)

    return method
