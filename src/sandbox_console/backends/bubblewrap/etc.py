"""The small /etc of a sandbox on the host's image."""

from __future__ import annotations

from collections.abc import Iterator

# Read-only from the host: what programs look up there that is neither secret nor about this machine.
HOST_ETC = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "ca-certificates",
    "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust", "terminfo", "localtime", "mime.types", "protocols",
    "services",
)  # fmt: skip


def files(hostname: str, user: str, uid: int, gid: int, home: str) -> Iterator[tuple[str, str]]:
    """Path and text of each generated file."""
    people = {"root": (0, 0, "/root"), user: (uid, gid, home), "nobody": (65534, 65534, "/nonexistent")}
    yield "/etc/passwd", "".join(f"{n}:x:{u}:{g}::{h}:/bin/sh\n" for n, (u, g, h) in people.items())
    yield "/etc/group", "".join(f"{n}:x:{g}:\n" for n, (_u, g, _h) in people.items())
    yield "/etc/hostname", f"{hostname}\n"
    yield "/etc/hosts", f"127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost {hostname}\n"
    yield "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
    yield "/etc/resolv.conf", ""
