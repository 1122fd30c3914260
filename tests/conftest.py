"""For all tests: a command carries itself out, and leaves no process behind; who tests its server turns it on."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ["SANDBOX_CONSOLE_SERVER"] = "off"
# How long examples take to make says how busy the machine is, and nothing about what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
