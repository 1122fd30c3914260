"""The shells that are looked for in a sandbox, the best first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

SHELLS = tuple(
    f"{folder}/{name}"
    for name in ("bash", "zsh", "fish", "ash", "sh")
    for folder in ("/bin", "/usr/bin", "/usr/local/bin")
)
NO_SHELL = "the sandbox's image has no shell (bash, zsh, fish, ash, sh)"
NO_SHELL_HINT = (
    "run a program with exec, attach to the main process, name another shell with --shell, or bring one: "
    "sandbox-console cp BUSYBOX NAME:/tmp/sh with a static busybox, then --shell /tmp/sh"
)


def distinct(paths: Iterable[str]) -> list[str]:
    """Return one path of each shell, the first found: /bin is often the same folder as /usr/bin."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(PurePosixPath(path).name, path)
    return [*found.values()]
