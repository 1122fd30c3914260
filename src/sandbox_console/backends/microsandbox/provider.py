"""The entry point: one backend, for the user's own microsandbox home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.microsandbox.backend import MicrosandboxBackend
from sandbox_console.backends.microsandbox.create_options import Options
from sandbox_console.errors import ConfigError

_OPTIONS = ("ca_certs", "insecure_registries")


class MicrosandboxProvider:
    """The backend's provider. Its options are lists of strings.

    ``ca_certs`` are files of additional authorities for checking upstream servers when TLS is intercepted.
    ``insecure_registries`` are registries that are reached without TLS. MSB_HOME, MSB_PATH and the like are the SDK's
    own variables.
    """

    name: ClassVar[str] = "microsandbox"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """The one backend. Raises ConfigError for an unknown option."""
        found = {}
        for option, value in settings.options.items():
            if option not in _OPTIONS:
                raise ConfigError(
                    f"the microsandbox backend has no option {option!r}",
                    hint=f"it has {' and '.join(_OPTIONS)}; MSB_HOME and the other MSB_ variables are respected",
                )
            if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
                raise ConfigError(f"{option} of the microsandbox backend is a list of texts")
            found[option] = value
        return [MicrosandboxBackend(settings.state_dir, Options(**found))]
