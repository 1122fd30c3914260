from __future__ import annotations

import secrets as random

import pytest


@pytest.fixture
def canary() -> str:
    """A value that occurs nowhere else on this machine."""
    return f"canary-{random.token_hex(12)}"
