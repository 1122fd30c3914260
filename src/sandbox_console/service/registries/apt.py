"""Where apt fetches Debian packages from: its sources, of this machine or of an image that is a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sandbox_console.errors import Conflict
from sandbox_console.service.registries.machine import Learning, Machine, Site

_LINE = re.compile(r"deb(?:-src)?\s+(?:\[[^]]*\]\s*)?(\S+)")
_OFF = ("no", "false", "without", "off", "disable", "0")
"""What apt takes for no in ``Enabled`` (StringToBool in its strutl.cc)."""


def debian_mirror(machine: Machine) -> Site:
    """The hosts of apt's sources, in both of their formats."""
    learning = Learning(machine)
    sources = _of_image(learning) if machine.image else _of_machine(learning)
    for name, origin, text in sources:
        for uri in _stanzas(text) if name.endswith(".sources") else _lines(text):
            _add(learning, uri, origin)
    where = f"the image {machine.image}" if machine.image else "this machine"
    return learning.site(f"apt has no sources with a host in {where}")


def _of_machine(learning: Learning) -> Iterator[tuple[str, str, str]]:
    """Each file with sources: its name, where it is, and what it says."""
    folder = learning.machine.etc / "apt"
    parts = folder / "sources.list.d"
    try:
        names = sorted(one.name for one in parts.iterdir())
    except OSError:
        names = []
    for path in (folder / "sources.list", *(parts / name for name in names if name.endswith((".list", ".sources")))):
        yield path.name, str(path), learning.read(path)


def _of_image(learning: Learning) -> Iterator[tuple[str, str, str]]:
    folder, parts = "etc/apt", "etc/apt/sources.list.d"
    try:
        names = sorted(learning.machine.names_in_image(parts))
    except (OSError, Conflict):
        names = []
    for name in (f"{folder}/sources.list", *(f"{parts}/{name}" for name in names)):
        if name.endswith((".list", ".sources")):
            yield name, f"/{name} of the image", learning.read_image(name)


def _add(learning: Learning, uri: str, origin: str) -> None:
    """Add a source's host. Those without one, such as ``cdrom:`` and ``file:``, are left out."""
    scheme, _, rest = uri.partition(":")
    if scheme in ("http", "https"):
        learning.add(uri, origin)
    elif scheme in ("mirror", "mirror+http", "mirror+https"):
        learning.add(f"http{'s' if scheme.endswith('s') else ''}:{rest}", origin)
        learning.note(f"{origin} has a list of mirrors, whose own hosts are not known")
    elif scheme == "mirror+file" and not learning.machine.image:
        path = re.sub("^//(?=/)", "", rest)
        for line in learning.read(Path(path)).splitlines():
            if line.startswith(("http:", "https:")):
                learning.add(line.split()[0], path)


def _lines(text: str) -> Iterator[str]:
    """The URIs of the one-line format."""
    for line in text.splitlines():
        if found := _LINE.match(line.partition("#")[0].strip()):
            yield found[1]


def _stanzas(text: str) -> Iterator[str]:
    """The URIs of the deb822 format, without those of stanzas that are not enabled."""
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n[ \t]*\n", kept):
        fields = dict[str, str]()
        for field in re.split(r"\n(?=\S)", stanza.strip("\n")):
            name, _, value = field.partition(":")
            fields[name.strip().lower()] = value.strip()
        if fields.get("enabled", "yes").lower() not in _OFF:
            yield from fields.get("uris", "").split()
