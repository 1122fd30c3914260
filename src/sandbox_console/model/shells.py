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
    "bring one: sandbox-console shell NAME --busybox puts this machine's static busybox into its memory; or run a "
    "program with exec, attach to the main process, or name another shell with --shell"
)


def distinct(paths: Iterable[str]) -> list[str]:
    """Return one path of each shell, the first found: /bin is often the same folder as /usr/bin."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(PurePosixPath(path).name, path)
    return [*found.values()]
