"""The entry point: one backend for each of Podman's services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.common.options import check_known, host_names
from sandbox_console.backends.podman.connections import default_connections

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

        check_known(cls.name, settings.options, _OPTIONS)
        kept, size = capabilities(settings.options), tmp_mib(settings.options)
        names = host_names(cls.name, settings.options, cls.hosts_option, "user")
        connections = default_connections() if names is None else names
        made = [PodmanBackend(name, settings.state_dir, kept=kept, tmp_mib=size) for name in connections]
        for one in made:
            one.apart_from(settings.guests)
        return made
