"""Whether a secret that is meant for some hosts can reach others from a sandbox."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.model import hosts
from sandbox_console.model.secret import Inject
from sandbox_console.secrets.sources import SecretSource


def unkept(name: str, source: SecretSource, inject: Inject, egress: Sequence[str]) -> str:
    """A sentence where nothing keeps the secret to its hosts; empty where something does, or it has none.

    What keeps it: a placeholder, which only the backend's proxy fills in; no network; an egress list within the hosts.
    """
    if not source.hosts or inject == "placeholder":
        return ""
    own = [hosts.parse(text, allow_ip=True) for text in source.hosts]
    others = [text for text in egress if not _covered(text, own)]
    if not others:
        return ""
    where = "the environment" if inject == "env" else "a file"
    return (
        f"{name} is meant for {', '.join(source.hosts)}, but in {where} it can be sent wherever egress leads: "
        f"{', '.join(others)}"
    )


def _covered(text: str, own: Sequence[hosts.HostPattern]) -> bool:
    try:
        asked = hosts.parse(text, allow_ip=True)
    except ValueError:
        return False  # told elsewhere; here it keeps nothing
    return any(hosts.covers(allowed, asked) for allowed in own)
