"""Talks to a provider of OpenID Connect, by authlib: where to log in, and who came back.

Everything here blocks, so it runs in threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from sandbox_console.errors import Unsupported
from sandbox_console.service.oidc_options import OidcOptions, is_safe

PROVIDER_S = 10.0
"""How long the provider may take to answer one request."""

_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_OPTIONAL = ("userinfo_endpoint", "end_session_endpoint")

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key: no ``none``, and nothing that the client's secret could forge."""

_LEEWAY_S = 60


class ProviderFailed(Exception):
    """The provider does not answer, or its answer is not valid."""


class Attempt(Struct, frozen=True):
    """A login that was begun: where it was sent to, and what must come back."""

    url: str
    state: str
    nonce: str
    verifier: str


class Provider:
    """One provider. ``redirect`` is our own address to which it sends people back."""

    def __init__(self, options: OidcOptions, secret: str, redirect: str) -> None:
        need_package()
        self._options, self._secret, self._redirect = options, secret, redirect
        self._known: Mapping[str, Any] = {}

    def begin(self) -> Attempt:
        """A new login, with PKCE. Raises ProviderFailed."""
        from authlib.common.security import generate_token

        state, nonce, verifier = (generate_token(48) for _ in range(3))
        url, _ = self._session().create_authorization_url(
            self._metadata()["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
        )
        return Attempt(url, state, nonce, verifier)

    def finish(self, attempt: Attempt, code: str) -> tuple[Mapping[str, Any], str]:
        """The claims about who came back with a code, and the token that proves them. Raises ProviderFailed."""
        try:
            token = self._session().fetch_token(
                self._metadata()["token_endpoint"], code=code, code_verifier=attempt.verifier, timeout=PROVIDER_S
            )
            claims = self._claims(token, attempt.nonce)
        except ProviderFailed:
            raise
        except Exception as error:  # authlib, joserfc and requests share no base, and any of them means no login
            raise ProviderFailed(f"{type(error).__name__}: {error}"[:300]) from error
        return claims, str(token["id_token"])

    def end_session(self, id_token: str, back: str) -> str:
        """Where to log out at the provider; empty if it has no such address, or does not answer."""
        try:
            endpoint = str(self._metadata().get("end_session_endpoint", ""))
        except ProviderFailed:
            return ""
        given = {"id_token_hint": id_token, "post_logout_redirect_uri": back, "client_id": self._options.client_id}
        return f"{endpoint}?{urlencode(given)}" if endpoint else ""

    def _claims(self, token: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.jwk import KeySet

        keys = KeySet.import_key_set(self._get(self._metadata()["jwks_uri"]))  # type: ignore[arg-type]
        decoded = jwt.decode(token["id_token"], keys, algorithms=_ALGORITHMS)
        required = {
            "iss": {"essential": True, "value": self._options.issuer},
            "aud": {"essential": True, "value": self._options.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        params = {"nonce": nonce, "client_id": self._options.client_id, "access_token": token.get("access_token")}
        claims = CodeIDToken(decoded.claims, decoded.header, required, params)
        claims.validate(leeway=_LEEWAY_S)
        return {**self._userinfo(token, str(claims["sub"])), **claims}

    def _userinfo(self, token: Mapping[str, Any], subject: str) -> Mapping[str, Any]:
        """Further claims, as many providers leave groups out of the token."""
        endpoint = self._metadata().get("userinfo_endpoint")
        if not endpoint or "access_token" not in token:
            return {}
        found = self._get(endpoint, {"Authorization": f"Bearer {token['access_token']}"})
        if found.get("sub") != subject:
            raise ProviderFailed("the provider's userinfo is about somebody else")
        return found

    def _metadata(self) -> Mapping[str, Any]:
        if not self._known:
            found = self._get(f"{self._options.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self._options.issuer:
                raise ProviderFailed(f"the provider calls itself {found.get('issuer')!r}, not {self._options.issuer!r}")
            for name in (*_NEEDED, *(name for name in _OPTIONAL if name in found)):
                if not is_safe(found.get(name)):
                    raise ProviderFailed(f"the provider's {name} is no https address: {found.get(name)!r}"[:300])
            self._known = found
        return self._known

    def _get(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        import requests

        try:
            with requests.Session() as session:
                _bound(session)
                answer = session.get(url, headers=dict(headers or {}), timeout=PROVIDER_S)
            answer.raise_for_status()
            found = answer.json()
        except (requests.RequestException, ValueError, RecursionError) as error:  # a huge number, or very deep JSON
            raise ProviderFailed(f"{url} cannot be read: {error}"[:300]) from error
        if not isinstance(found, dict) or answer.status_code != 200:
            raise ProviderFailed(f"{url} has no JSON object")
        return found

    def _session(self) -> Any:
        from authlib.integrations.requests_client import OAuth2Session

        session = OAuth2Session(
            self._options.client_id, self._secret or None, scope=" ".join(self._options.scopes),
            redirect_uri=self._redirect, code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
        )  # fmt: skip
        _bound(session)
        return session


def _bound(session: Any) -> None:
    from sandbox_console.web.bounded_answers import BoundedAdapter

    for scheme in ("https://", "http://"):
        session.mount(scheme, BoundedAdapter(PROVIDER_S))


def need_package() -> None:
    """Raise Unsupported if authlib is not installed."""
    try:
        import authlib  # noqa: F401
        import requests  # noqa: F401
    except ImportError:
        hint = "pip install 'sandbox-console-tui[oidc]'"
        raise Unsupported("[serve.oidc] needs authlib, which is not installed", hint=hint) from None
