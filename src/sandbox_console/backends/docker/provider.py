"""The entry point: one backend for each docker context."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.common.options import check_known, host_names
from sandbox_console.backends.docker.contexts import config_folder
from sandbox_console.hostfs.own_files import read_own

_MOST_BYTES = 4 << 20
_OPTIONS = ("contexts", "capabilities", "tmp_mib", "egress_image", "egress_network", "egress_pool", "egress_hosts")


class DockerProvider:
    """The entry point. Options: ``contexts``, names of docker contexts (default: the current one); ``egress_*``.

    Also ``capabilities``, the Linux capabilities that root in a sandbox keeps (none), and ``tmp_mib``, the size of
    /tmp.
    """

    name: ClassVar[str] = "docker"
    hosts_option: ClassVar[str] = "contexts"

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per context. Raises ConfigError for an unknown option or an invalid value. Uses no network."""
        from sandbox_console.backends.docker.backend import DockerBackend
        from sandbox_console.backends.docker.gateways import Options
        from sandbox_console.backends.docker.hardening import capabilities, tmp_mib

        check_known(cls.name, settings.options, _OPTIONS)
        options = Options.from_table(settings.options)
        kept = capabilities(settings.options)
        size = tmp_mib(settings.options)
        contexts = host_names(cls.name, settings.options, cls.hosts_option, "default") or [current_context()]
        made = [DockerBackend(name, settings.state_dir, options, kept, size) for name in contexts]
        for one in made:
            one.apart_from(settings.guests)
        return made


def current_context() -> str:
    """The context the docker CLI would use: DOCKER_HOST wins (as "default"), then DOCKER_CONTEXT, then its config."""
    if os.environ.get("DOCKER_HOST"):
        return "default"
    if name := os.environ.get("DOCKER_CONTEXT"):
        return name
    try:
        found = json.loads(read_own(config_folder() / "config.json", _MOST_BYTES, follow=True)).get("currentContext")
    except (OSError, ValueError, AttributeError):
        return "default"
    return found if isinstance(found, str) and found else "default"
