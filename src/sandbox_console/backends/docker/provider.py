"""The entry point: one backend for each docker context."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.docker.contexts import config_folder
from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest

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

        for option in settings.options:
            if option not in _OPTIONS:
                near = nearest(option, _OPTIONS)
                hint = f"did you mean {near!r}?" if near else f"known ones: {', '.join(_OPTIONS)}"
                raise ConfigError(f"the docker backend has no option {option!r}", hint=hint)
        options = Options.from_table(settings.options)
        kept = capabilities(settings.options)
        size = tmp_mib(settings.options)
        return [DockerBackend(name, settings.state_dir, options, kept, size) for name in _contexts(settings)]


def _contexts(settings: BackendSettings) -> list[str]:
    names = settings.options.get("contexts")
    if names is None:
        return [current_context()]
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("docker: contexts is a list of context names", hint='for example contexts = ["default"]')
    if len(set(names)) != len(names):
        raise ConfigError("docker: contexts names one context twice", hint="keep one of them")
    return list(names)


def current_context() -> str:
    """The context the docker CLI would use: DOCKER_HOST wins (as "default"), then DOCKER_CONTEXT, then its config."""
    if os.environ.get("DOCKER_HOST"):
        return "default"
    if name := os.environ.get("DOCKER_CONTEXT"):
        return name
    try:
        found = json.loads((config_folder() / "config.json").read_bytes()).get("currentContext")
    except (OSError, ValueError, AttributeError):
        return "default"
    return found if isinstance(found, str) and found else "default"
