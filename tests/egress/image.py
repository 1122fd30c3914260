"""An image with Python and curl, put together from this machine's own files: no registry is asked."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from tests.support.engine import busybox_tree

NAME = "sandbox-console-test:python"
PYTHON = "/usr/bin/python3"
_SKIPPED = re.compile(
    r"/(__pycache__|test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data|config-[^/]*)(/|$)"
)


@cache
def tree() -> bytes:
    """The root filesystem as a tar: busybox, /usr/bin/python3 with its library, curl, and what they link to."""
    out = io.BytesIO(busybox_tree())
    with tarfile.open(fileobj=out, mode="a") as tar:
        library = Path(_ask("import sysconfig; print(sysconfig.get_path('stdlib'))"))
        files = [path for path in library.rglob("*") if path.is_file() and not _SKIPPED.search(str(path))]
        binaries = [Path(PYTHON).resolve(), Path("/usr/bin/curl")]
        links = _libraries([*binaries, *(path for path in files if path.suffix == ".so")])
        for path in [*binaries, *files, *links]:
            tar.add(path.resolve(), str(path).lstrip("/"), recursive=False)
        info = tarfile.TarInfo("usr/bin/python3")
        info.type, info.linkname = tarfile.SYMTYPE, Path(PYTHON).resolve().name
        tar.addfile(info)
        tar.add("/etc/nsswitch.conf", "etc/nsswitch.conf")
    return out.getvalue()


def with_libraries(program: str) -> list[Path]:
    """A program of this machine and all that it links to; empty where it is not."""
    return [Path(program), *_libraries([Path(program)])] if Path(program).exists() else []


def _ask(code: str) -> str:
    return subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _libraries(binaries: list[Path]) -> list[Path]:
    """What the dynamic loader would load, and itself, at the paths where it looks."""
    said = subprocess.run(["ldd", *map(str, binaries)], check=False, capture_output=True, text=True).stdout
    found = {Path(one) for one in re.findall(r"(/\S+\.so\S*) \(0x", said)}
    extra = _ask(
        "import ctypes, json; print(json.dumps([l.split()[-1] for l in open('/proc/self/maps') if '.so' in l]))"
    )
    # The C library loads its name services when a name is first asked for.
    services = {path for one in set(json.loads(extra)) for path in Path(one).parent.glob("libnss_*.so.2")}
    return sorted(found | services)
