"""Lists the folders and files of a user, and of the engines on this machine, that no workspace should contain.

They have keys of the user's, programs that run as the user, what other sandboxes are made of, or what libraries read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

_KEYS, _PROGRAMS = "with keys or tokens of yours", "with programs that run as you"
_PAGES, _ENGINE = "with your browser's logins", "where an engine keeps its sandboxes and images"

_IN_HOME = {
    _KEYS: (
        ".ssh", ".gnupg", ".aws", ".azure", ".oci", ".config/gcloud", ".config/doctl", ".config/hcloud", ".config/gh",
        ".config/glab-cli", ".config/hub", ".config/op", ".config/sops", ".config/age", ".config/rclone",
        ".config/helm", ".config/containers", ".docker", ".kube", ".password-store", ".local/share/keyrings",
        ".local/share/kwalletd",
        ".pki", ".vault.d", ".terraform.d", ".cargo/credentials.toml", ".config/pypoetry", ".config/pip",
    ),
    _PROGRAMS: (
        ".config/systemd", ".config/autostart", ".config/git", ".config/environment.d", ".config/fish", ".local/bin",
        ".local/share/systemd", ".cargo/bin", ".oh-my-zsh", "bin", ".local/share/applications", ".local/share/dbus-1",
        ".local/share/bash-completion", ".pyenv", ".nvm", ".rustup", ".asdf", ".local/share/mise", ".vim",
        ".config/nvim", ".emacs.d", ".config/emacs", ".vscode", ".config/Code",
    ),
    _PAGES: (".mozilla", ".config/chromium", ".config/google-chrome", ".config/BraveSoftware", ".thunderbird"),
    _ENGINE: (".microsandbox", ".local/share/containers", ".local/share/docker", ".local/share/containerd"),
}  # fmt: skip

_BY_VARIABLE = {
    "DOCKER_CONFIG": _KEYS, "GNUPGHOME": _KEYS, "CLOUDSDK_CONFIG": _KEYS, "AZURE_CONFIG_DIR": _KEYS,
    "PASSWORD_STORE_DIR": _KEYS, "GH_CONFIG_DIR": _KEYS, "REGISTRY_AUTH_FILE": _KEYS,
    "AWS_SHARED_CREDENTIALS_FILE": _KEYS, "AWS_CONFIG_FILE": _KEYS, "GOOGLE_APPLICATION_CREDENTIALS": _KEYS,
    "NETRC": _KEYS, "MSB_HOME": _ENGINE,
}  # fmt: skip

_OF_THE_MACHINE = (
    "/var/lib/docker", "/var/lib/containers", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/rancher",
    "/run/containerd", "/run/containers", "/run/docker",
)  # fmt: skip


# What OpenSSL, aiohttp, requests and asyncpg read without being told: whom to trust, passwords, what to load.
_READ_BY_VARIABLE = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "OPENSSL_CONF", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC",
    "PGPASSFILE", "PGSERVICEFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "OPENSSL_MODULES",
    "OPENSSL_ENGINES", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "GCONV_PATH", "LOCPATH",
)  # fmt: skip
_LISTS = {"LD_PRELOAD": "[ :]", "LD_LIBRARY_PATH": "[:;]", "LD_AUDIT": ":", "PYTHONPATH": ":"}
"""What the loader and Python read before any check, and how each separates several paths. An empty one is the current
folder."""

_READ_IN_HOME = (
    ".netrc", ".pgpass", ".pg_service.conf", ".postgresql/root.crt", ".postgresql/root.crl",
    ".postgresql/postgresql.crt", ".postgresql/postgresql.key",
)  # fmt: skip

_MOVED = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}


def private_folders() -> Iterator[tuple[str, Path]]:
    """Yield what each is, in words, and its path. Not all of them exist."""
    with contextlib.suppress(RuntimeError):  # no home
        home = Path.home()
        for what, names in _IN_HOME.items():
            for name in names:
                yield what, home / name
                yield from ((what, moved) for moved in _moved(name))
    for variable, what in _BY_VARIABLE.items():
        if (text := os.environ.get(variable, "")).startswith(("/", "~")):
            with contextlib.suppress(RuntimeError):
                yield what, Path(text).expanduser()
    for path in _OF_THE_MACHINE:
        yield _ENGINE, Path(path)


def library_files() -> Iterator[tuple[str, Path]]:
    """Yield what each file is that a library reads on its own, in words, and its path. All of them exist."""
    named = [(variable, os.environ.get(variable, "")) for variable in _READ_BY_VARIABLE]
    named += [
        (variable, one or (os.curdir if "LIBRARY" in variable or "PYTHON" in variable else ""))
        for variable, separators in _LISTS.items()
        if (value := os.environ.get(variable))
        for one in re.split(separators, value)
    ]
    for variable, text in named:
        if text and os.path.lexists(text):
            yield f"{variable}, which libraries of the console use", Path(text).absolute()
    with contextlib.suppress(RuntimeError):  # no home
        for name in _READ_IN_HOME:
            if os.path.lexists(path := Path.home() / name):
                yield "which libraries of the console read", path


def _moved(name: str) -> Iterator[Path]:
    """Where a folder is if the user keeps the one that contains it elsewhere."""
    for usual, variable in _MOVED.items():
        elsewhere = os.environ.get(variable, "")
        if name.startswith(usual) and elsewhere.startswith("/"):  # others are ignored, as the specification says
            yield Path(elsewhere, name.removeprefix(usual))
