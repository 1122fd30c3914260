"""For all tests: a command carries itself out, and leaves no process behind; who tests its server turns it on."""

from __future__ import annotations

import contextlib
import os

os.environ["SANDBOX_CONSOLE_SERVER"] = "off"
with contextlib.suppress(ImportError):  # an ordinary user's environment has no hypothesis
    from hypothesis import HealthCheck, settings

    # How long examples take to make says how busy the machine is, and nothing about what is tested.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
