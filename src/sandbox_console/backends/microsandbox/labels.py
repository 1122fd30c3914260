"""The labels by which the console recognises its own microVMs. None ever holds a secret's value."""

from __future__ import annotations

from collections.abc import Mapping

OWN = "sandbox-console."

ID = f"{OWN}id"
"""The sandbox's id, which survives a rename. Every microVM of the console has it."""

INSTALLATION = f"{OWN}installation"
"""The installation that made it, by the id of its state directory, as the user's other consoles share the runtime."""

SPEC = f"{OWN}spec"
"""The spec as requested, as JSON. It contains only the names of secrets."""

NAME = f"{OWN}name"
"""Its name since a rename, as the runtime cannot change its own name for it."""

ENDED = f"{OWN}ended"
"""``JOB CODE``: the code of the signal with which the console ended a main process. The runtime reports none."""

SECRETS = f"{OWN}placeholders"
"""The names of the secrets that the runtime substitutes, separated by commas."""


def users(labels: Mapping[str, str]) -> dict[str, str]:
    """The user's own labels."""
    return {key: value for key, value in labels.items() if not key.startswith(OWN)}
