"""The rules that a gateway applies. They are read again when they change on disk."""

from __future__ import annotations

import time
from pathlib import Path

from sandbox_console.egress.connection import Refused
from sandbox_console.egress.rule_files import FILE, Policy, in_force, load
from sandbox_console.model.egress import EgressRule


class Rules:
    """A policy file, which is read again when it is replaced. ``generation`` grows with each change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: tuple[int, int, int] | None = None
        self.policy: Policy | None = None
        self.generation = 0

    def look(self) -> int:
        """Read the file if it has changed, and return the generation.

        If it cannot be read, ``policy`` is None and nothing passes.
        """
        try:
            stat = (self._folder / FILE).stat()
            stamp = stat.st_ino, stat.st_mtime_ns, stat.st_size
            if stamp != self._stamp:
                self.policy, self._stamp = load(self._folder), stamp
                self.generation += 1
        except (OSError, ValueError):
            self.generation += self.policy is not None
            self.policy = self._stamp = None
        return self.generation

    def current(self) -> tuple[Policy, tuple[EgressRule, ...]]:
        """The policy, and its rules that apply now. Raises Refused if no policy can be read."""
        self.look()
        if self.policy is None:
            raise Refused("no_policy")
        return self.policy, in_force(self.policy.rules, time.time())
