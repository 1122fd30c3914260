"""The entry point: one backend for each of Podman's services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.podman.connections import default_connections
from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest

_OPTIONS = ("connections", "capabilities", "tmp_mib")


class PodmanProvider:
    """The entry point. Options: ``connections``, ``capabilities`` and ``tmp_mib``.

    A connection is ``system`` (root's socket), ``user`` (the user's own), or the name of one of ``podman system
    connection``. Without the option it is those of the first two whose sockets are there. ``capabilities`` and
    ``tmp_mib`` mean what they mean for Docker.
    """

    name: ClassVar[str] = "podman"
    hosts_option: ClassVar[str] = "connections"
    absent_hint: ClassVar[str] = "start its service: systemctl enable --now podman.socket, or with --user your own"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per connection. Raises ConfigError for an unknown option or an invalid value. Uses no network."""
        from sandbox_console.backends.docker.hardening import capabilities, tmp_mib
        from sandbox_console.backends.podman.backend import PodmanBackend

        for option in settings.options:
            if option not in _OPTIONS:
                near = nearest(option, _OPTIONS)
                hint = f"did you mean {near!r}?" if near else f"known ones: {', '.join(_OPTIONS)}"
                raise ConfigError(f"the podman backend has no option {option!r}", hint=hint)
        kept, size = capabilities(settings.options), tmp_mib(settings.options)
        return [PodmanBackend(name, settings.state_dir, kept=kept, tmp_mib=size) for name in _names(settings)]


def _names(settings: BackendSettings) -> list[str]:
    names = settings.options.get("connections")
    if names is None:
        return default_connections()
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("podman: connections is a list of names", hint='for example connections = ["user"]')
    if len(set(names)) != len(names):
        raise ConfigError("podman: connections names one twice", hint="keep one of them")
    return list(names)
