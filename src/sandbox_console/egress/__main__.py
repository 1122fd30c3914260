"""Runs the gateway from the package's folder or a zipapp, without site-packages."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.modules["ssl"] = None  # type: ignore[assignment] # asyncio does without; 4.5 MB less
    if not __package__:
        sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))  # noqa: PTH100, PTH118, PTH120
    from sandbox_console.egress.main import main

    sys.exit(main())
