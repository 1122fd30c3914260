"""For all tests: a command carries itself out, and leaves no process behind; who tests its server turns it on."""

from __future__ import annotations

import os

os.environ["SANDBOX_CONSOLE_SERVER"] = "off"
