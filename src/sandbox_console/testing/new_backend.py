"""Writes a backend that works, its test and its package.

Run ``python -m sandbox_console.testing.new_backend NAME [FOLDER]``.

The backend runs plain processes, keeps none of them in, and says so: the place of each is where a provider's call goes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sandbox_console.errors import ConsoleError, UsageError

_TEMPLATES = Path(__file__).with_name("skeleton")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FILES = {
    "backend.py.txt": "{name}.py",
    "test_backend.py.txt": "test_{name}.py",
    "conftest.py.txt": "conftest.py",
    "pyproject.toml.txt": "pyproject.toml",
}


def write(name: str, folder: Path) -> list[Path]:
    """Write the files of a backend called ``name`` into a folder, none of which may be there; gives their paths.

    Raises UsageError for a name that is no module's, and where a file is in the way.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a backend", hint="lower case letters, digits and _: my_cloud")
    places = {template: folder / file.format(name=name) for template, file in _FILES.items()}
    for place in places.values():
        if place.exists():
            raise UsageError(f"{place} exists already", hint="choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    kind = "".join(part.capitalize() for part in name.split("_"))
    for template, place in places.items():
        place.write_text((_TEMPLATES / template).read_text().replace("my_backend", name).replace("MyBackend", kind))
    return list(places.values())


def main(words: list[str]) -> int:
    """Write what the words ask for and print the paths."""
    try:
        if not 1 <= len(words) <= 2:
            raise UsageError("a name is needed", hint="python -m sandbox_console.testing.new_backend NAME [FOLDER]")
        made = write(words[0], Path(words[1] if len(words) > 1 else words[0]))
    except ConsoleError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{place}\n" for place in made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
