"""A provider of OpenID Connect, or somebody on the way to it, that floods, redirects, drips or lies."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sandbox_console.service.oidc_options import GroupRole, OidcOptions, is_safe
from sandbox_console.web import oidc_client, oidc_login
from sandbox_console.web.oidc_client import Attempt, Provider, ProviderFailed
from sandbox_console.web.oidc_login import OidcFailed, OidcLogins

WELL_KNOWN = "/.well-known/openid-configuration"
ATTEMPT = Attempt("", "state", "nonce", "verifier")


class Hostile:
    """``answers`` has what is sent for a path, instead of what a good provider sends; ``asked`` are the paths."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with suppress(OSError):
                    outer.answers.get(self.path, outer.good)(self)

            do_POST = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.metadata: dict[str, Any] = {"issuer": self.url} | {
            f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token", "userinfo")
        }
        self.metadata["jwks_uri"] = f"{self.url}/jwks"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def good(self, handler: BaseHTTPRequestHandler) -> None:
        known = {WELL_KNOWN: self.metadata, "/jwks": {"keys": []}}
        known["/token"] = {"access_token": "x", "id_token": "a.b.c", "token_type": "Bearer"}
        sent(json.dumps(known.get(handler.path, {})).encode())(handler)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def sent(body: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in ({"Content-Length": str(len(body))} | given).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def bomb(handler: BaseHTTPRequestHandler) -> None:
    sent(gzip.compress(b" " * (64 << 20)), Content_Encoding="gzip")(handler)


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        threading.Event().wait(0.02)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    made = Hostile()
    yield made
    made.close()


@pytest.fixture
def provider(hostile: Hostile) -> Provider:
    return Provider(options_of(hostile), "the-clients-own-secret", "http://127.0.0.1/callback")


def options_of(hostile: Hostile) -> OidcOptions:
    return OidcOptions(issuer=hostile.url, client_id="x", roles=(GroupRole(group="*", role="viewer"),))


FLOODS = {
    "an endless answer": (endless, "more than 1 MiB"),
    "a long one": (sent(b'{"a": "' + b"x" * (2 << 20) + b'"}'), "more than 1 MiB"),
    "one that unpacks to 64 MiB": (bomb, "compressed"),
    "very deep JSON": (sent(b"[" * 200_000), "cannot be read|RecursionError"),
    "a huge number": (sent(b'{"a": ' + b"9" * 5000 + b"}"), "cannot be read|ValueError|Exceeds"),
    "no text": (sent(b"\xff\xfe\x00\xd8"), "cannot be read|Error"),
    "a list": (sent(b"[]"), "no JSON object|Error"),
    "less than it says": (sent(b"{", Content_Length="100"), "broken|IncompleteRead"),
    "another address": (sent(b"", 302, Location="http://127.0.0.1:9/"), "redirects are not followed"),
    "another address, with what was sent": (sent(b"", 307, Location="/elsewhere"), "redirects are not followed"),
}


@pytest.mark.parametrize("what", FLOODS)
@pytest.mark.parametrize("path", [WELL_KNOWN, "/token", "/jwks"])
def test_an_answer_of_any_kind_ends_the_login_with_an_error(provider, hostile, what, path):
    hostile.answers[path], word = FLOODS[what]
    if path != WELL_KNOWN:
        provider.begin()
    with pytest.raises(ProviderFailed, match=word) as caught:
        provider.begin() if path == WELL_KNOWN else provider.finish(ATTEMPT, "code")
    assert len(str(caught.value)) <= 300
    assert "the-clients-own-secret" not in str(caught.value)
    assert "/elsewhere" not in hostile.asked


def test_an_answer_that_drips_is_given_up(provider, hostile, monkeypatch):
    monkeypatch.setattr(oidc_client, "PROVIDER_S", 0.2)
    hostile.answers[WELL_KNOWN] = dripping
    with pytest.raises(ProviderFailed, match="not complete within"):
        provider.begin()


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"])
@pytest.mark.parametrize("value", [None, 7, "", "http://login.example/x", "javascript:alert(1)", "//x", "https://[::1"])
def test_an_address_that_is_not_https_is_not_used(provider, hostile, name, value):
    """Neither the browser nor the client's secret is sent there."""
    hostile.metadata[name] = value
    with pytest.raises(ProviderFailed, match=f"{name} is no https address"):
        provider.begin()


def test_what_is_safe():
    assert is_safe("https://login.example/x")
    assert is_safe("http://127.0.0.1:9/x")
    assert not is_safe("http://127.0.0.1.example/x")


async def test_a_provider_that_keeps_everybody_waiting_holds_up_logins_alone(monkeypatch):
    """Not the threads that the page's other work is done in, and no more of its own than 16."""
    monkeypatch.setattr(oidc_login, "ANSWER_S", 0.05)
    release = threading.Event()

    class Waiting:
        def begin(self) -> Attempt:
            release.wait(30)
            return ATTEMPT

    roles = (GroupRole(group="*", role="viewer"),)
    logins = OidcLogins(OidcOptions(issuer="https://x", client_id="x", roles=roles), Waiting())  # type: ignore[arg-type]
    for _ in range(oidc_login.ASKED_MOST):
        with pytest.raises(OidcFailed, match="not answered within"):
            await logins.begin()
    with pytest.raises(OidcFailed, match="earlier requests"):
        await logins.begin()
    assert await asyncio.to_thread(lambda: 7) == 7
    release.set()
    async with asyncio.timeout(10):
        while logins._asked:
            await asyncio.sleep(0.01)
    monkeypatch.setattr(oidc_login, "ANSWER_S", 30.0)
    assert (await logins.begin())[0] == ""
