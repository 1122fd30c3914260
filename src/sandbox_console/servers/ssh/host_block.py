"""The ``Host`` block for ``~/.ssh/config`` by which OpenSSH's programs find ``proxy``."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from sandbox_console.errors import ConfigError, Conflict
from sandbox_console.hostfs.files import NewFile, fresh_name, make_folder, open_found
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import Location, find
from sandbox_console.servers.ssh.keys import HOST_ALIAS, KeyFolder

SUFFIX = ".sandbox"
OWN_USER = "sandbox-default"
"""The user name that stands for the sandbox's own user. Any other name is a user in the sandbox."""

_BEGIN, _END = "# begin sandbox-console ssh-config", "# end sandbox-console ssh-config"

_REFUSED = ("-*", *(f"*{char}*" for char in "'`$;&|<>(){}[]!\\"))
"""Host names that the block is not for.

ssh puts the name into a shell's command line, and a repository can choose it as the address of a submodule
(CVE-2023-51385). Within single quotes only a quote is dangerous, and a backslash in fish; the others are no part of a
sandbox's name either.
"""


def host_block(keys: KeyFolder, command: Sequence[str]) -> str:
    """The block. ``command`` is the program with its options, to which ``proxy NAME`` is added. Raises ConfigError."""
    program = " ".join(_for_shell(word) for word in command)
    lines = [
        f"Host *{SUFFIX} " + " ".join(f'"!{pattern}"' for pattern in _REFUSED),
        f"    ProxyCommand {program} proxy '%n'",
        f"    User {OWN_USER}",
        f"    IdentityFile {_path(keys.user_key)}",
        "    IdentitiesOnly yes",
        "    IdentityAgent none",
        "    PreferredAuthentications publickey",
        f"    UserKnownHostsFile {_path(keys.known_hosts)}",
        "    GlobalKnownHostsFile /dev/null",
        f"    HostKeyAlias {HOST_ALIAS}",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
        "    CanonicalizeHostname no",
        "    ForwardAgent no",
        "    ForwardX11 no",
        "    ForwardX11Trusted no",
    ]
    return "\n".join(lines) + "\n"


def _for_shell(word: str) -> str:
    """A word for the shell's command line, after ssh has replaced its tokens."""
    if "\n" in word:
        raise ConfigError(f"{word!r} cannot be written into an ssh configuration", hint="choose a path of one line")
    return shlex.quote(word).replace("%", "%%")


def _path(path: Path) -> str:
    """A path as an argument in the configuration. ssh has no escape for a quote or for ``${``, so it raises."""
    text = str(path)
    if any(part in text for part in ('"', "\n", "\\", "${")):
        hint = "choose another state folder: SANDBOX_CONSOLE_HOME"
        raise ConfigError(f"{text!r} cannot be written into an ssh configuration", hint=hint)
    return f'"{text}"'.replace("%", "%%")


def write(block: str, file: Path, guest_folders: GuestFolders) -> None:
    """Put the block at the beginning of a configuration file, in place of an earlier one.

    ssh takes the first value that it finds for an option, so that a ``Host *`` above the block would win. Raises
    ConfigError, Conflict for a link that a guest planted.
    """
    try:
        file = file.expanduser()
        make_folder(file.parent, guest_folders, 0o700)
        with find(file, guest_folders) as found:
            _refuse_guests(found)
            _replace(found, f"{_BEGIN}\n{block}{_END}\n" + _without(_before(found), file), guest_folders)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(
            f"{file} is not changed: {why}", hint="add the output of ssh-config to it yourself"
        ) from error


def _refuse_guests(found: Location) -> None:
    """Raise Conflict if a guest can write the file, since ssh runs the programs that it names."""
    if root := found.folder.root:
        raise Conflict(
            f"{found.path} lies in {root.path}, where a sandbox can write, and ssh runs the programs that it names",
            hint="keep your ssh configuration where no sandbox writes",
        )


def _before(found: Location) -> str:
    """The file's text, empty if there is none. Raises OSError, UnicodeDecodeError, Conflict."""
    if found.what is None:
        return ""
    with os.fdopen(open_found(found), encoding="utf-8") as file:
        return file.read()


def _replace(found: Location, text: str, guest_folders: GuestFolders) -> None:
    """Put a new file with the text in the place of the old one, whose mode it keeps. Raises OSError, Conflict."""
    mode = stat.S_IMODE(found.what.st_mode) if found.what else 0o600
    fresh = NewFile(f"{found.folder.path}/{fresh_name()}", guest_folders, mode)
    try:
        fresh.file.write(text.encode())
        fresh.keep(replace=found.name)
    except BaseException:
        fresh.drop()
        raise


def _without(text: str, file: Path) -> str:
    """The text without an earlier block. Raises ConfigError if somebody removed one of the two marks."""
    lines = text.splitlines(keepends=True)
    marks = [number for number, line in enumerate(lines) if line.strip() in (_BEGIN, _END)]
    if not marks:
        return text
    begin, end = (marks[0], marks[-1]) if len(marks) == 2 else (0, -1)
    if end < 0 or lines[begin].strip() != _BEGIN or lines[end].strip() != _END:
        raise ConfigError(f"{file} is not changed: its block is not whole", hint=f"remove the lines {_BEGIN!r}")
    return "".join(lines[:begin] + lines[end + 1 :])
