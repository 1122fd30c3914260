"""The ``[serve.oidc]`` table: a provider of OpenID Connect, and what its groups may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from sandbox_console.errors import ConfigError, UsageError
from sandbox_console.model.access import Access, Role, checked_labels
from sandbox_console.secrets.sources import SecretSource, resolve

_LOCAL = ("127.0.0.1", "::1", "localhost")


class GroupRole(Struct, frozen=True, kw_only=True):
    """What the members of a group may do. ``labels`` are ``KEY=VALUE`` pairs that limit them."""

    group: str
    role: Role
    labels: tuple[str, ...] = ()


class OidcOptions(Struct, frozen=True, kw_only=True):
    """The provider at ``issuer``, and how its claims are read.

    ``client_secret`` is a source as of a secret (``env:NAME``, ``file:PATH``); without it, the client is a public one.
    ``name_claim`` is the person's name in the audit log, ``groups_claim`` a list of groups. The first of ``roles`` that
    names a group of the person applies; ``*`` is everybody whom the provider lets in. ``title`` is on the button.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    title: str = "single sign-on"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ("openid", "profile")
    roles: tuple[GroupRole, ...]

    def check(self) -> None:
        """Raise ConfigError for what cannot work, or would not be safe."""
        if not is_safe(self.issuer):
            raise ConfigError(
                f"serve.oidc.issuer: {self.issuer!r} is no https address", hint="as in https://login.example"
            )
        if "openid" not in self.scopes:
            raise ConfigError("serve.oidc.scopes lacks 'openid'", hint='scopes = ["openid", "profile"]')
        if not self.roles:
            raise ConfigError("serve.oidc.roles is empty, so nobody could log in", hint="see docs/users.md")
        for entry in self.roles:
            try:
                checked_labels(entry.labels)
            except UsageError as error:
                raise ConfigError(f"serve.oidc.roles: {error.message}", hint=error.hint) from None

    async def secret(self) -> str:
        """The client's secret; empty for a public client. Raises SecretError."""
        if not self.client_secret:
            return ""
        name = "serve.oidc.client_secret"
        [found] = await resolve([name], {name: SecretSource(source=self.client_secret)})
        return found.value

    def access(self, claims: Mapping[str, Any]) -> Access | None:
        """What a person with these claims may do; None for somebody without a role."""
        found = claims.get(self.groups_claim)
        groups = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        for entry in self.roles:
            if entry.group == "*" or entry.group in groups:
                return Access(entry.role, checked_labels(entry.labels))
        return None

    def name(self, claims: Mapping[str, Any]) -> str:
        """The person's name; empty without one. An address of mail counts only if the provider has verified it."""
        found = claims.get(self.name_claim)
        if not isinstance(found, str) or (self.name_claim == "email" and claims.get("email_verified") is not True):
            return ""
        return found if _is_plain(found) else ""


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= 100 and name.isprintable() and name == name.strip()


def is_safe(address: object) -> bool:
    """Whether an address of a provider's is https, or of this machine."""
    try:
        url = urlsplit(address) if isinstance(address, str) else urlsplit("")
        return bool(url.hostname) and (url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOCAL))
    except ValueError:  # a broken [IPv6] address
        return False
