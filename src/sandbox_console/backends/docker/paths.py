"""Builds paths of the engine's API. Only valid ids get into them."""

from __future__ import annotations

import re

from sandbox_console.errors import NotFound

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*(?:/[A-Za-z0-9_.:@-]+)*\Z")
NAMING = "write NAME[:TAG], in lower case: alpine:3"


def container_path(id: str, rest: str = "") -> str:
    """The path of a container's endpoint. Raises NotFound for an impossible id."""
    if not _ID.match(id):
        raise NotFound(f"{id!r} is not a container's id", hint="sandbox-console ls --all")
    return f"containers/{id}/{rest}" if rest else f"containers/{id}"


def image_path(image: str, rest: str = "json") -> str:
    """The path of an image's endpoint, by default for its description. Raises ValueError for an invalid reference."""
    if not _IMAGE.match(image) or ".." in image:
        raise ValueError(f"{image!r} is not an image's name")
    return f"images/{image}/{rest}" if rest else f"images/{image}"


def described(id: str) -> str:
    """A container as error messages name it."""
    return f"container {id[:12]}"
