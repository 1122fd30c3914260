"""Turns a spec into the arguments of bwrap."""

# ruff: noqa: S108 - these paths are inside the sandbox

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox_console.backends.bubblewrap import egress
from sandbox_console.backends.bubblewrap.binary import Bwrap
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

Word = str | dict[str, str]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IDLE = ("sleep", "2147483647")  # not every sleep accepts `infinity`; this is 68 years
_MIB = 1 << 20
_PASSWD_MOST = 4 * _MIB
_SMALL_MIB = 64
USER = "sandbox"
_USER = re.compile(r"(?P<uid>[0-9]{1,9})(?::(?P<gid>[0-9]{1,9}))?\Z")

# Read-only from the host: files that programs need, which contain no secrets and nothing about this machine.
_HOST_ETC = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "ca-certificates",
    "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust", "terminfo", "localtime", "mime.types", "protocols",
    "services",
)  # fmt: skip


def root_of(image: str) -> Path | None:
    """The folder of a ``dir:`` image; None for the host's. Raises ValueError for any other image."""
    if image in ("", "host"):
        return None
    kind, _, path = image.partition(":")
    if kind != "dir" or not path:
        raise ValueError(f"{image!r} is not an image of bubblewrap; use 'host' or 'dir:/PATH/OF/A/ROOT'")
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    root = Path(path)
    if not root.is_dir():
        raise ValueError(f"{path} is not a folder")
    if not ((root / "bin").is_dir() or (root / "bin").is_symlink() or (root / "usr/bin").is_dir()):
        raise ValueError(f"{path} is not a root filesystem: it has neither bin nor usr/bin")
    if root.resolve() == Path("/"):
        raise ValueError("'dir:/' would show the sandbox this whole host; use 'host'")
    return root


def identity(user: str | None, root: Path | None) -> tuple[str, int, int]:
    """Name, uid and gid inside. Raises ValueError for a name that the image does not have."""
    if user in (None, "", USER):
        return USER, 1000, 1000
    if user == "root":
        return "root", 0, 0
    if match := _USER.match(user or ""):
        uid = int(match["uid"])
        return ("root" if uid == 0 else USER), uid, int(match["gid"] or uid)
    if root is not None and (root / "etc/passwd").is_file():
        with (root / "etc/passwd").open(errors="replace") as file:
            lines = file.read(_PASSWD_MOST).splitlines()
        for line in lines:
            parts = line.split(":")
            if len(parts) > 3 and parts[0] == user and parts[2].isdigit() and parts[3].isdigit():
                return parts[0], int(parts[2]), int(parts[3])
    raise ValueError(f"there is no user {user!r} in the image; use a number, 'root' or {USER!r}")


def home_of(spec: SandboxSpec) -> str:
    """The home folder inside."""
    name, _uid, _gid = identity(spec.user, root_of(spec.image))
    return "/root" if name == "root" else f"/home/{name}"


def workdir_of(spec: SandboxSpec) -> str:
    """Where commands start: in the requested folder, else in the workspace, else in the home folder."""
    return spec.workdir or ("/workspace" if spec.workspace else home_of(spec))


def environment(spec: SandboxSpec, secrets: Sequence[ResolvedSecret]) -> dict[str, str]:
    """The variables of every command: a few usual ones, the gateway's, the spec's and the secrets'."""
    name = identity(spec.user, root_of(spec.image))[0]
    usual = {"PATH": PATH, "HOME": home_of(spec), "USER": name, "LOGNAME": name, "LANG": "C.UTF-8"}
    return (
        usual
        | egress.variables(spec)
        | dict(spec.env)
        | {secret.name: secret.value for secret in secrets if secret.inject == "env"}
    )


def words(spec: SandboxSpec, secrets: Sequence[ResolvedSecret], bwrap: Bwrap, options: Options) -> list[Word]:
    """All of bwrap's arguments except the command. They contain secrets: they only pass through memory."""
    root = root_of(spec.image)
    _name, uid, gid = identity(spec.user, root)
    home = home_of(spec)
    out: list[Word] = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    out += ["--disable-userns"] if bwrap.disable_userns and not spec.nested_userns else []
    out += ["--uid", str(uid), "--gid", str(gid), "--hostname", spec.name]
    out += _tmpfs("/", _SMALL_MIB)
    out += _host(spec, home) if root is None else [{"image": str(root)}]
    out += [
        "--proc",
        "/proc",
        *_without_keys(spec),
        "--dev",
        "/dev",
        *_tmpfs("/dev/shm", _SMALL_MIB),
        "--remount-ro",
        "/dev",
    ]
    out += ["--perms", "1777", *_tmpfs("/tmp", options.tmp_mib), *_tmpfs("/run", _SMALL_MIB), "--dir", "/home"]
    out += _tmpfs(home, options.tmp_mib)
    out += [{"workspace": spec.workspace}] if spec.workspace else []
    out += _secret_files(secrets)
    out += ["--remount-ro", "/"] if spec.read_only_root else []
    return [*out, "--chdir", workdir_of(spec)]


def _without_keys(spec: SandboxSpec) -> list[Word]:
    """Cover the lists of keys in /proc.

    The kernel lists keys by user, and the guest of an ordinary user's console is that user on this host.

    If part of /proc is covered, the kernel does not let nested namespaces mount a /proc of their own.
    """
    shown = spec.nested_userns or not Path("/proc/keys").exists()
    return [] if shown else ["--ro-bind", "/dev/null", "/proc/keys"]


def _tmpfs(path: str, mib: int) -> list[Word]:
    return ["--size", str(mib * _MIB), "--tmpfs", path]


def _host(spec: SandboxSpec, home: str) -> list[Word]:
    out: list[Word] = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        at = Path("/") / name
        if at.is_symlink():
            out += ["--symlink", str(at.readlink()), str(at)]
        elif at.is_dir():
            out += ["--ro-bind", str(at), str(at)]
    out += [
        "--dir",
        "/etc",
        "--dir",
        "/etc/ssl",
        "--dir",
        "/var",
        "--symlink",
        "../tmp",
        "/var/tmp",
        "--symlink",
        "../run",
        "/var/run",
    ]
    name, uid, gid = identity(spec.user, None)
    for path, text in _etc_files(spec.name, name, uid, gid, home):
        out.append({"dest": path, "perms": "0644", "text": text})
    for part in _HOST_ETC:
        out += ["--ro-bind-try", f"/etc/{part}", f"/etc/{part}"]
    return out


def _secret_files(secrets: Sequence[ResolvedSecret]) -> list[Word]:
    files = [secret for secret in secrets if secret.inject == "file"]
    out: list[Word] = ["--perms", "0700", "--dir", "/run/secrets"] if files else []
    return out + [{"dest": f"/run/secrets/{secret.name}", "perms": "0400", "text": secret.value} for secret in files]


def _etc_files(hostname: str, user: str, uid: int, gid: int, home: str) -> Iterator[tuple[str, str]]:
    """Path and text of each generated file of a small /etc, for a sandbox on the host's image."""
    people = {"root": (0, 0, "/root"), user: (uid, gid, home), "nobody": (65534, 65534, "/nonexistent")}
    yield "/etc/passwd", "".join(f"{n}:x:{u}:{g}::{h}:/bin/sh\n" for n, (u, g, h) in people.items())
    yield "/etc/group", "".join(f"{n}:x:{g}:\n" for n, (_u, g, _h) in people.items())
    yield "/etc/hostname", f"{hostname}\n"
    yield "/etc/hosts", f"127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost {hostname}\n"
    yield "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
    yield "/etc/resolv.conf", ""
