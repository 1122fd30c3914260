"""The log's key, a secret in a file of mode 0600. It authenticates rows, the head and anchors, and it signs anchors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

_MOST = 4096  # the most bytes read of a key's file: the key has 64
_ROW = b"sandbox-console/audit/row-key/2\n"
_HEAD = b"sandbox-console/audit/head-key/2\n"
_PAIR = b"sandbox-console/audit/ed25519/2\n"
_SPKI = bytes.fromhex("302a300506032b6570032100")
"""The prefix of the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410, section 4)."""


class KeyRefused(OSError):
    """Others could have read or replaced the key's file. ``hint`` says what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


class Keys:
    """The key's file and what is derived from it. It is read again if the file was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()
        self._secret = self._row = self._head = b""
        self.form = 1
        """The oldest form that a segment of this log may have: 2 if the log started with form 2."""

    def make(self, form: int = 1) -> None:
        """Make a key if there is none, for a log that starts with segments of this form. Raises OSError, KeyRefused."""
        if not os.path.lexists(self.path):
            self._write(secrets.token_hex(32) + (f"\nform {form}\n" if form > 1 else ""))
        self.load()

    def _write(self, content: str) -> None:
        """Write the whole file or nothing, because a part of a key would be refused for ever."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)  # O_EXCL follows no link
        with os.fdopen(fd, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.path)

    def load(self) -> bool:
        """Read the file if it has changed. Returns whether the key has changed. Raises OSError, KeyRefused, ValueError.

        The check takes 2 us; reading the file each time would take 15.
        """
        if _identity(os.lstat(self.path)) == self._seen:
            return False
        before = self._secret
        self._secret, self.form, self._seen = _read(self.path)
        self._row, self._head = (hmac.digest(self._secret, domain, "sha256") for domain in (_ROW, _HEAD))
        return self._secret != before

    def load_or_make(self) -> bool:
        """Load the key, or make one. Returns whether it differs from the previous one. Raises as `load` and `make`."""
        try:
            return self.load()
        except FileNotFoundError:
            self.make()
            return True

    def secret(self) -> bytes:
        """The key itself. Raises OSError, KeyRefused, ValueError for a malformed one."""
        self.load()
        return self._secret

    def mac(self, text: bytes) -> str:
        """HMAC-SHA256 of an anchor or a manifest, in hex. Raises like `secret`."""
        return hmac.new(self.secret(), text, hashlib.sha256).hexdigest()

    def of_row(self, link: bytes) -> bytes:
        """The MAC of a row, with the key that was loaded last."""
        return hmac.digest(self._row, link, "sha256")

    def of_head(self, text: bytes) -> str:
        """The MAC of the head's file, in hex, with the key that was loaded last."""
        return hmac.digest(self._head, text, "sha256").hex()

    def sign(self, text: bytes) -> str:
        """An Ed25519 signature, in hex. Raises like `secret`."""
        made: bytes = _pair(self.secret()).sign(text)
        return made.hex()

    def public(self) -> bytes:
        """The public key as PEM, which `openssl pkey` reads. Raises like `secret`."""
        body = base64.encodebytes(_SPKI + _pair(self.secret()).public_key().public_bytes_raw())
        return b"-----BEGIN PUBLIC KEY-----\n" + body + b"-----END PUBLIC KEY-----\n"


class PublicKey:
    """The public key with which another machine checks signatures."""

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError if it is not an Ed25519 public key."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            found = load_pem_public_key(pem)
        except (UnsupportedAlgorithm, ValueError):
            raise ValueError("it is not a public key in PEM format") from None
        if not isinstance(found, Ed25519PublicKey):
            raise ValueError("it is not an Ed25519 key")  # noqa: TRY004 - the content is wrong, not a type here
        self._key = found

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the 32 bytes of the key, in hex."""
        return hashlib.sha256(self._key.public_bytes_raw()).hexdigest()

    def holds(self, signature: str, text: bytes) -> bool:
        """Whether a signature (hex) is valid for this text."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


def _pair(secret: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the type would import 20 ms of cryptography
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(hmac.digest(secret, _PAIR, "sha256"))


def _read(path: Path) -> tuple[bytes, int, tuple[int, ...]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise KeyRefused(f"{path} is a link", "whoever made it chose the key: look where it leads") from error
        raise
    try:
        st = os.fstat(fd)
        _refuse(path, st)
        lines = os.pread(fd, _MOST, 0).decode("ascii").split("\n")
    finally:
        os.close(fd)
    secret = bytes.fromhex(lines[0])
    if lines[0] != secret.hex() or len(secret) < 16 or lines[1:] not in ([], [""], ["form 2", ""]):
        raise ValueError(f"{path} contains no key")
    return secret, 2 if len(lines) > 2 else 1, _identity(st)


def _refuse(path: Path, st: os.stat_result) -> None:
    if not stat.S_ISREG(st.st_mode):
        raise KeyRefused(f"{path} is not a file", "move it away; the next console makes a new key")
    if st.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise KeyRefused(f"{path} belongs to another user", "whoever made it knows the key: move it away")
    if st.st_mode & 0o077:
        raise KeyRefused(
            f"others may read {path} (mode {stat.S_IMODE(st.st_mode):04o})",
            f"chmod 600 {path}; whoever read it can rewrite log and anchors",
        )


def _identity(st: os.stat_result) -> tuple[int, ...]:
    return (st.st_dev, st.st_ino, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
