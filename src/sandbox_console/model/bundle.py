"""Evidence bundles as data: what is in one, what is missing, and the result of checking it."""

from __future__ import annotations

from msgspec import Struct

FORMAT = "sandbox-console/bundle/1"
"""The format of a bundle, and the first line of the text that its signature covers."""

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
PUBLIC_KEY, ANCHORS = "audit/public-key.pem", "audit/anchors-000001.jsonl"
ROWS, LINKS = "audit/rows", "audit/links"
"""Paths of the parts that the check of a bundle reads. The last two are prefixes."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a bundle. ``sha256`` is hex; ``redacted`` counts the secrets that were masked in it."""

    name: str
    bytes: int
    sha256: str
    redacted: int = 0


class Absent(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a bundle does not have, and why."""

    part: str
    why: str


class Bundled(Struct, frozen=True, forbid_unknown_fields=True):
    """One sandbox of a bundle. ``folder`` holds its parts; ``withheld`` counts variables whose values were left out."""

    name: str
    ref: str
    folder: str
    missing: tuple[Absent, ...] = ()
    withheld: int = 0


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of ``manifest.json``. ``until`` is the time of the newest evidence, in seconds since the epoch.

    ``rows`` counts the rows of the audit log, ``unproved`` the rows that are not linked to an anchor, and ``redacted``
    the masked secrets in all parts.
    """

    format: str
    version: str
    until: float
    actor: str
    sandboxes: tuple[Bundled, ...]
    parts: tuple[Part, ...]
    rows: int = 0
    unproved: int = 0
    redacted: int = 0
    missing: tuple[Absent, ...] = ()


class BundleCheck(Struct, frozen=True):
    """The result of checking a bundle. ``key`` is the SHA-256 of its public key; ``limits`` is what remains unknown."""

    ok: bool
    problem: str = ""
    manifest: Manifest | None = None
    bytes: int = 0
    key: str = ""
    limits: tuple[str, ...] = ()
