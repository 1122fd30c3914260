"""Checks a bundle on any machine: it needs no console, no state and no backend, and treats the file as hostile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from sandbox_console.audit.keys import PublicKey
from sandbox_console.audit.proof_check import ProofCheck
from sandbox_console.errors import UsageError
from sandbox_console.model.bundle import FORMAT, LINKS, MANIFEST, PUBLIC_KEY, ROWS, SIGNATURE, BundleCheck, Manifest
from sandbox_console.service.incident.bundle import signed_text
from sandbox_console.service.incident.bundle_file import TRAILER
from sandbox_console.service.incident.bundle_reader import Member, Refused, check_whole, members

_AUDIT_PART_MOST = 128 << 20
_MANIFEST_MOST = 256 << 20
_SMALL = 4096
_ANCHORS = "audit/anchors"
LIMITS = (
    "what happened before the bundle was made and is not in it, or was never recorded",
    "whether somebody who can read the log's key made another bundle of the same sandboxes",
)
_WHOSE = "whose key signed it: compare the key, or give --public-key with the output of audit public-key"


def verify(file: BinaryIO, public: bytes | None = None) -> BundleCheck:
    """Check a bundle, a file that can be read twice, with a public key (PEM) from elsewhere, if there is one.

    The result says what is wrong with the file. Raises UsageError for an invalid key, OSError.
    """
    try:
        expected = PublicKey(public) if public is not None else None
    except ValueError as error:
        raise UsageError(f"this is not the public key of an audit log: {error}") from None
    try:
        return _Checking(expected).run(file)
    except Refused as error:
        return BundleCheck(False, error.message)


class _Checking:
    """The state of a check."""

    def __init__(self, expected: PublicKey | None) -> None:
        self._expected = expected
        self._key: PublicKey | None = None
        self._proof: ProofCheck | None = None
        self._seen: list[tuple[str, int, str]] = []
        self._manifest = self._signature = b""

    def run(self, file: BinaryIO) -> BundleCheck:
        """Check the whole file. Raises Refused or ValueError with what is wrong."""
        size = check_whole(file)
        for member in members(file, size):
            if self._signature:
                raise Refused(f"{member.name} follows the signature")
            self._member(member)
        manifest = self._signed()
        self._against(manifest)
        self._rows(manifest)
        limits = LIMITS if self._expected else (_WHOSE, *LIMITS)
        return BundleCheck(True, "", manifest, size + TRAILER, self._key.fingerprint if self._key else "", limits)

    def _member(self, member: Member) -> None:
        name = member.name
        if name == MANIFEST:
            self._manifest = member.read(_MANIFEST_MOST)
        elif name == SIGNATURE:
            self._signature = member.read(_SMALL)
        elif name.startswith("audit/"):
            content = member.read(_AUDIT_PART_MOST)
            self._note(name, [content])
            try:
                self._audit(name, content)
            except ValueError as error:
                raise Refused(str(error)) from None
        else:
            self._note(name, member.blocks)

    def _note(self, name: str, blocks: Iterable[bytes]) -> None:
        digest, size = hashlib.sha256(), 0
        for block in blocks:
            digest.update(block)
            size += len(block)
        self._seen.append((name, size, digest.hexdigest()))

    def _audit(self, name: str, content: bytes) -> None:
        if name == PUBLIC_KEY:
            self._key = PublicKey(content)
            if self._expected and self._expected.fingerprint != self._key.fingerprint:
                raise Refused("it was signed by another key than the one that was given")
            self._proof = ProofCheck(self._expected or self._key)
            return
        if self._proof is None:
            raise Refused(f"{name} comes before the key")
        for begin, take in ((_ANCHORS, self._proof.anchor), (ROWS, self._proof.row), (LINKS, self._proof.link)):
            if name.startswith(begin + "-"):
                for line in content.split(b"\n")[:-1]:
                    take(line)
                if content and not content.endswith(b"\n"):
                    raise Refused(f"{name} ends within a line")
                return
        raise Refused(f"{name} is no part of a bundle")

    def _signed(self) -> Manifest:
        if not (self._manifest and self._signature and self._key):
            raise Refused("it has no signed manifest")
        if not (self._expected or self._key).holds(self._signature.hex(), signed_text(self._manifest)):
            raise Refused("the manifest's signature is not valid: the manifest was changed")
        try:
            manifest = msgspec.json.decode(self._manifest, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"the manifest cannot be read: {error}") from None
        if manifest.format != FORMAT:
            raise Refused(f"it is of the form {manifest.format!r}, and this version reads {FORMAT!r}")
        return manifest

    def _rows(self, manifest: Manifest) -> None:
        assert self._proof is not None  # noqa: S101 - made with the key, which is there by now
        try:
            self._proof.end(manifest.unproved)
        except ValueError as error:
            raise Refused(str(error)) from None
        if self._proof.rows != manifest.rows:
            raise Refused(f"it has {self._proof.rows} audit rows, and its manifest names {manifest.rows}")

    def _against(self, manifest: Manifest) -> None:
        """The parts must be those of the manifest, in its order."""
        named = [(part.name, part.bytes, part.sha256) for part in manifest.parts]
        for there, named_part in zip(self._seen, named, strict=False):
            if there != named_part:
                what = "is different" if there[0] == named_part[0] else f"is where {named_part[0]} belongs"
                raise Refused(f"{there[0]} {what}: the bundle is not as its manifest says")
        if len(self._seen) != len(named):
            raise Refused(f"it has {len(self._seen)} parts, and its manifest names {len(named)}")
