"""Commits a container's root to an image, without the settings that belong to the console's own containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.enforcement import command
from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.labels import OF_SANDBOXES, WRAPPER
from sandbox_console.backends.docker.paths import container_path, described, image_path
from sandbox_console.backends.docker.reference import Reference
from sandbox_console.errors import Unsupported
from sandbox_console.model.secret import SECRET_WORD

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine


async def commit(engine: Engine, id: str, image: str) -> str:
    """Make an image, and return its id. Raises NotFound, and UsageError for an invalid name.

    Files with secrets are in memory and therefore in no image. Raises Unsupported if a variable of the container looks
    like a secret: the engine writes the container's whole configuration into the image, where anyone can read it.
    """
    reference = Reference.parse(image)
    with about(described(id)):
        data = await engine.call("GET", container_path(id, "json"))
        if secret := _secret_names(data["Config"], await _own_variables(engine, data["Image"])):
            raise Unsupported(
                f"the variable {secret[0]!r} looks like a secret's, and the engine would write it into the image",
                hint="hand it to the sandbox as a secret (secrets = [...]) instead of in env, then commit",
            )
        params = {"container": data["Id"], "repo": reference.name, "tag": reference.tag or "latest", "pause": 1}
        made = await engine.call("POST", "commit", params=params, body=_config(data["Config"]), timeout_s=None)
    return str(made["Id"])


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    # Labels are emptied rather than left out, as a missing label is copied from the container.
    made: dict[str, Any] = {"Labels": {key: "" for key in OF_SANDBOXES if key in (config.get("Labels") or {})}}
    if (config.get("Entrypoint") or [])[3:4] == [WRAPPER]:
        made |= {"Entrypoint": [], "Cmd": command(config)}
    return made


async def _own_variables(engine: Engine, image: str) -> list[str]:
    """The variables that the image itself sets, which are not the container's secrets; empty if it is gone."""
    try:
        return list(((await engine.call("GET", image_path(image)))["Config"] or {}).get("Env") or ())
    except Refused as error:
        if error.status == 404:
            return []
        raise


def _secret_names(config: Mapping[str, Any], known: list[str]) -> list[str]:
    fresh = [entry.partition("=") for entry in config.get("Env") or () if entry not in known]
    return [name for name, _, value in fresh if value and SECRET_WORD.search(name)]
