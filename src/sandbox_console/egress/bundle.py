"""Packs the gateway into one file that Python 3.11 and later run."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_MODEL = ("hosts.py", "egress.py")
_START = "import sys\nsys.modules['ssl'] = None\nfrom sandbox_console.egress.main import main\nsys.exit(main())\n"


def members() -> dict[str, bytes]:
    """The files in the zipapp, by name: this folder, two modules of the model, and empty packages around them."""
    found = {
        "__main__.py": _START.encode(),
        "sandbox_console/__init__.py": b"",
        "sandbox_console/model/__init__.py": b"",
    }
    for name in _MODEL:
        found[f"sandbox_console/model/{name}"] = (_PACKAGE / "model" / name).read_bytes()
    for path in sorted((_PACKAGE / "egress").glob("*.py")):
        found[f"sandbox_console/egress/{path.name}"] = path.read_bytes()
    return found


def build() -> bytes:
    """The zipapp's bytes. They depend on the sources only, so a build can be reproduced."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members().items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()
