"""The entry point: one backend for each runtime of A3S Box that the configuration names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.a3s.options import WITHIN, runtimes
from sandbox_console.backends.base import Backend, BackendSettings


class A3sProvider:
    """The entry point. The only option is ``runtimes``; without it the backend is off."""

    name: ClassVar[str] = "a3s"
    hosts_option: ClassVar[str] = "runtimes"
    absent_hint: ClassVar[str] = "name a runtime: [backends.a3s.runtimes.local]"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per runtime. Raises ConfigError. Starts no process."""
        found = runtimes(cls.name, settings)
        if not found or WITHIN in os.environ:
            return []
        from sandbox_console.backends.a3s.backend import A3sBackend

        folder, guests = settings.state_dir, settings.guests
        return [A3sBackend(name, one, guests, folder / name.replace("/", "%2F")) for name, one in found.items()]
