from __future__ import annotations

from tests.bubblewrap.conftest import _bubblewrap, backend, make, open_folder, options, permit, state_dir, workspace

__all__ = ["_bubblewrap", "backend", "make", "open_folder", "options", "permit", "state_dir", "workspace"]
