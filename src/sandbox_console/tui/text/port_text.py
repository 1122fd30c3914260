"""Published ports as text: the backend's actual ports, or the ones that the spec requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from sandbox_console.model import ports
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Sandbox

FACT = "port "
"""The prefix of the name of a fact about a port. It is followed by, for example, ``80/tcp``."""
_EVERY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - read, not bound
"""The address to use if this host listens on all addresses."""
_TLS = 443


class Opening(Struct, frozen=True, gc=False):
    """A sandbox's port and its address on the host. ``at.host_port`` is 0 if it is not known, or not yet."""

    at: PublishedPort
    protocol: str = "tcp"

    def __str__(self) -> str:
        at, host = self.at, str(self.at.host_port or "free")
        host_address = host if at.loopback else f"{at.host_address.rpartition(':')[0]}:{host}"
        return f"{host_address}→{at.port}" + ("" if self.protocol == "tcp" else f"/{self.protocol}")


def openings(sandbox: Sandbox) -> tuple[Opening, ...]:
    """Return every published port, ordered by sandbox port. If the backend reports no address, it is as requested."""
    in_effect = tuple(_openings(sandbox)) if sandbox.effective else ()
    if sandbox.spec is None or not sandbox.spec.ports:
        return tuple(sorted(in_effect, key=_by_port))
    known = {one.at.port for one in in_effect}
    requested = [one for one in _asked(sandbox.spec.ports) if one.port not in known]
    return tuple(sorted((*in_effect, *map(Opening, requested)), key=_by_port))


def address(sandbox: Sandbox) -> str:
    """Return ``http://ADDRESS:PORT`` of the first TCP port, or an empty string if no host address is known."""
    for opening in openings(sandbox):
        if opening.protocol == "tcp" and opening.at.host_port:
            return url(opening.at)
    return ""


def url(at: PublishedPort) -> str:
    """Return the address on the host as a URL for a browser."""
    host_address, _, number = at.host_address.rpartition(":")
    return f"{'https' if at.port == _TLS else 'http'}://{_EVERY.get(at.address, host_address)}:{number}"


def _by_port(opening: Opening) -> tuple[int, str, int]:
    return opening.at.port, opening.protocol, opening.at.host_port


def _openings(sandbox: Sandbox) -> Iterator[Opening]:
    for fact in sandbox.effective:
        if fact.field.startswith(FACT):
            number, _, protocol = fact.field.removeprefix(FACT).partition("/")
            for host_address in fact.value.split(", "):
                yield from (
                    Opening(port, protocol or "tcp") for port in _asked((f"{host_address}:{number}",)) if port.host_port
                )


def _asked(texts: tuple[str, ...]) -> Iterator[PublishedPort]:
    """Yield the requested ports that can be parsed. A backend's description in words is not an address."""
    for text in texts:
        try:
            yield ports.parse(text)
        except ValueError:
            continue
