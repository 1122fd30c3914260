"""An image of a container's root, without what only the console's own containers carry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.facts import command
from sandbox_console.backends.docker.failures import about
from sandbox_console.backends.docker.labels import MANAGED, SECRETS, SPEC, WORKSPACE, WRAPPER
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.reference import Reference

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

SECRET_WORD = re.compile(
    r"pass|pwd|secret|token|credential|private|auth|cookie|session|dsn|(api|access|signing|encryption)?_?key",
    re.IGNORECASE,
)
"""What the name of a variable that holds a secret has in it."""


async def commit(engine: Engine, id: str, image: str) -> str:
    """The new image's id. Raises NotFound, UsageError for a name that cannot be one.

    Files of secrets are in memory and so in no image. Variables that look like a secret's are emptied in it, the
    image's own too: the engine merges the container's configuration in and lets nothing be left out.
    """
    reference = Reference.parse(image)
    with about(described(id)):
        data = await engine.call("GET", container_path(id, "json"))
    params = {"container": data["Id"], "repo": reference.name, "tag": reference.tag or "latest", "pause": 1}
    with about(described(id)):
        made = await engine.call("POST", "commit", params=params, body=_config(data["Config"]), timeout_s=None)
    return str(made["Id"])


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    # Emptied rather than left out: a label that is not there is taken from the container.
    made: dict[str, Any] = {
        "Labels": {key: "" for key in (MANAGED, SPEC, SECRETS, WORKSPACE) if key in (config.get("Labels") or {})},
        "Env": [f"{name}=" for name in _secret_names(config)],
    }
    if (config.get("Entrypoint") or [])[3:4] == [WRAPPER]:
        made |= {"Entrypoint": [], "Cmd": command(config)}
    return made


def _secret_names(config: Mapping[str, Any]) -> list[str]:
    names = [entry.partition("=")[0] for entry in config.get("Env") or ()]
    return [name for name in names if SECRET_WORD.search(name)]
