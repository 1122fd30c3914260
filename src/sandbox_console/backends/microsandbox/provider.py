"""The entry point: one backend, for the user's own microsandbox home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.microsandbox.backend import MicrosandboxBackend
from sandbox_console.errors import ConfigError


class MicrosandboxProvider:
    """It takes no options: MSB_HOME, MSB_PATH and the like are read by the SDK itself."""

    name: ClassVar[str] = "microsandbox"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """The one backend. Raises ConfigError for any option."""
        for option in settings.options:
            raise ConfigError(
                f"the microsandbox backend has no option {option!r}",
                hint="it takes none; MSB_HOME and the other MSB_ variables are respected",
            )
        return [MicrosandboxBackend()]
