"""Checks of the table of a backend in the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest


def check_known(backend: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises ConfigError for an option that the backend does not have."""
    for option in options:
        if option not in known:
            near = nearest(option, known)
            hint = f"did you mean {near!r}?" if near else f"known ones: {', '.join(known)}"
            raise ConfigError(f"the {backend} backend has no option {option!r}", hint=hint)


def host_names(backend: str, options: Mapping[str, Any], option: str, example: str) -> list[str] | None:
    """The names of hosts in an option, None without it. Raises ConfigError if it is not a list of different names."""
    names = options.get(option)
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{backend}: {option} is a list of names", hint=f'for example {option} = ["{example}"]')
    if len(set(names)) != len(names):
        raise ConfigError(f"{backend}: {option} names one of them twice", hint="keep one of them")
    return list(names)
