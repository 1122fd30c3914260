"""Splits an image's name into its parts, by the grammar of the distribution project."""

from __future__ import annotations

import re

from msgspec import Struct

from sandbox_console.backends.docker.paths import NAMING
from sandbox_console.errors import UsageError

HUB = "docker.io"
_DOMAIN = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DIGEST = re.compile(r"[A-Za-z0-9]+:[0-9a-fA-F]{32,}\Z")


class Reference(Struct, frozen=True):
    """``name[:tag][@digest]``."""

    name: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Split a name. Raises UsageError for an impossible name of an image."""
        rest, at, digest = text.partition("@")
        name, colon, tag = rest.rpartition(":")
        if not colon or "/" in tag:
            name, tag, colon = rest, "", ""
        good = _NAME.match(name) and (not colon or _TAG.match(tag)) and (not at or _DIGEST.match(digest))
        if not good:
            raise UsageError(f"{text!r} is not an image's name", hint=NAMING)
        return cls(name, tag, digest)

    @property
    def wanted(self) -> str:
        """The tag or digest to pull; without one the engine would pull every tag."""
        return self.digest or self.tag or "latest"

    @property
    def registry(self) -> str:
        """The registry's host."""
        first, slash, _ = self.name.partition("/")
        return first if slash and ("." in first or ":" in first or first == "localhost") else HUB
