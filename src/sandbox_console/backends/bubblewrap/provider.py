"""The entry point: one backend, for the state folder of this console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.backends.bubblewrap.options import Options


class BubblewrapProvider:
    """Sandboxes of this machine's own, by bubblewrap."""

    name: ClassVar[str] = "bubblewrap"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """The one backend, of the local host. Raises ConfigError for an option it does not know."""
        return [BubblewrapBackend(settings.state_dir, Options.from_table(settings.options))]
