"""The labels by which the console recognises its own microVMs. None ever holds a secret's value."""

from __future__ import annotations

from collections.abc import Mapping

OWN = "sandbox-console."

ID = f"{OWN}id"
"""The sandbox's id, which survives a rename; on every microVM that the console made."""

INSTALLATION = f"{OWN}installation"
"""Its installation: the id of the state directory it was made from. Other consoles of this user share the runtime."""

SPEC = f"{OWN}spec"
"""The spec as requested, as JSON; of secrets it has only the names."""

NAME = f"{OWN}name"
"""Its name since a rename: the runtime cannot change its own."""

ENDED = f"{OWN}ended"
"""``JOB CODE``: the signal's code by which the console ended a main process; the runtime reports no signal."""

SECRETS = f"{OWN}placeholders"
"""The names of the secrets that the runtime substitutes, separated by commas."""


def users(labels: Mapping[str, str]) -> dict[str, str]:
    """The user's own labels."""
    return {key: value for key, value in labels.items() if not key.startswith(OWN)}
