"""The entry point: one backend, for the state folder of this console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.backends.bubblewrap.options import Options


class BubblewrapProvider:
    """Sandboxes on this machine, made by bubblewrap."""

    name: ClassVar[str] = "bubblewrap"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """The one backend, for the local host. Raises ConfigError for an unknown option."""
        return [BubblewrapBackend(settings.state_dir, Options.from_table(settings.options))]
