"""Writes a backend that works, its test and its package.

Run ``sandbox-console new-backend NAME [FOLDER]``.

The backend runs plain processes without isolation, and says so. A provider's calls go where it starts them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.hostfs.files import NewFile, make_folder
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.hostfs.walk import find

_TEMPLATES = Path(__file__).with_name("skeleton")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FILES = {
    "backend.py.txt": "{name}.py",
    "test_backend.py.txt": "test_{name}.py",
    "conftest.py.txt": "conftest.py",
    "pyproject.toml.txt": "pyproject.toml",
}


def write(name: str, folder: Path, guest_folders: GuestFolders = NOBODYS) -> list[Path]:
    """Write the files of a backend called ``name`` into a folder. None of them may exist. Returns their paths.

    Raises UsageError for a name that no module can have, and if a file is in the way; OSError, Conflict.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a backend", hint="lower case letters, digits and _: my_cloud"
        )
    places = {template: folder / file.format(name=name) for template, file in _FILES.items()}
    make_folder(folder, guest_folders)
    for place in places.values():
        with find(place, guest_folders, follow=False) as found:
            if found.what is not None:
                raise UsageError(f"{place} exists already", hint="choose another folder")
    kind = "".join(part.capitalize() for part in name.split("_"))
    for template, place in places.items():
        text = (_TEMPLATES / template).read_text().replace("my_backend", name).replace("MyBackend", kind)
        new_file = NewFile(place, guest_folders, 0o666)
        new_file.file.write(text.encode())
        new_file.keep()
    return list(places.values())


def tell(name: str, folder: str = "", guest_folders: GuestFolders = NOBODYS, *, as_json: bool = False) -> str:
    """Write a backend and return its paths, one per line. An empty ``folder`` means one of that name.

    ``guest_folders`` is what guests can change. Raises UsageError, Conflict, and ConsoleError if the folder cannot be
    written.
    """
    try:
        paths = write(name, Path(folder or name), guest_folders)
    except OSError as error:
        raise ConsoleError(
            f"{folder or name} cannot be written: {error.strerror}", hint="choose another folder"
        ) from None
    return "".join((json.dumps({"path": str(place)}) if as_json else str(place)) + "\n" for place in paths)
