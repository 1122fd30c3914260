"""People log in at a provider of OpenID Connect: a small one (oidc-provider-mock) with real keys and signatures.

It does not verify PKCE, so what a provider does about that is added here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import flask
import oidc_provider_mock
import pytest
from oidc_provider_mock import User
from tests.browser.serving import TOKEN, Client, Served, client, serving
from tests.browser.test_chromium import page, sees
from tests.browser.test_visit_records import CONSOLE, NO_BACKENDS, rows
from tests.support.require import requires
from werkzeug.serving import make_server

from sandbox_console.errors import ConfigError
from sandbox_console.model.access import Access
from sandbox_console.service.oidc_options import GroupRole, OidcOptions
from sandbox_console.web.oidc_client import Attempt, Provider, ProviderFailed
from sandbox_console.web.oidc_login import MOST, OidcFailed, OidcLogins

__all__ = ["page"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the provider's own use of authlib

PEOPLE = [
    User(sub="1", claims={"preferred_username": "ada", "groups": ["staff", "search"]}),
    User(sub="2", claims={"preferred_username": "eve", "groups": ["staff"]}),
    User(sub="3", claims={"preferred_username": "mallory", "groups": ["searching", "x"]}),
    User(sub="4", claims={"groups": ["admins"]}),
    User(sub="5", claims={"preferred_username": "evil\x1b[2J", "groups": ["admins"]}),
]
ROLES = """
[[serve.oidc.roles]]
group = "admins"
role = "admin"
[[serve.oidc.roles]]
group = "search"
role = "operator"
labels = ["team=search"]
[[serve.oidc.roles]]
group = "staff"
role = "viewer"
"""


def with_pkce(app: flask.Flask) -> flask.Flask:
    """The provider, which also verifies PKCE (RFC 7636, 4.6) and asks for it."""
    challenges: dict[str, str] = {}

    @app.after_request
    def note(response: flask.Response) -> flask.Response:
        codes = parse_qs(urlsplit(response.headers.get("Location", "")).query).get("code", [])
        if flask.request.path == "/oauth2/authorize" and codes:
            assert flask.request.args["code_challenge_method"] == "S256"
            challenges[codes[0]] = flask.request.args["code_challenge"]
        return response

    @app.before_request
    def verify() -> tuple[dict[str, str], int] | None:
        if flask.request.path != "/oauth2/token":
            return None
        verifier = flask.request.form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if 43 <= len(verifier) <= 128 and challenges.get(flask.request.form.get("code", "")) == digest:
            return None
        return {"error": "invalid_grant", "error_description": "the code_verifier is wrong"}, 400

    return app


@pytest.fixture
def issuer() -> Iterator[str]:
    provider = make_server(
        "localhost", 0, with_pkce(oidc_provider_mock.app(require_nonce=True, user_claims=PEOPLE)), threaded=True
    )
    thread = threading.Thread(target=provider.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    yield f"http://localhost:{provider.server_port}"
    provider.shutdown()
    thread.join()
    provider.server_close()


@pytest.fixture
def home(tmp_path: Path, issuer: str) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (secret := tmp_path / "client").write_text("the-clients-own-secret")
    secret.chmod(0o600)
    table = f'[serve.oidc]\nissuer = "{issuer}"\nclient_id = "console"\ntitle = "Example"\n'
    table += f'client_secret = "file:{secret}"\n'
    (folder / "config.toml").write_text(NO_BACKENDS + table + ROLES)
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    return folder


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Served]:
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token")]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        yield running


@pytest.fixture
async def it(server: Served) -> AsyncIterator[Client]:
    async with client(server) as found:
        yield found


async def go(it: Client, query: str = "") -> str:
    """Where the browser is sent to."""
    async with it.session.get(f"{it.url}/login/oidc{query}", allow_redirects=False) as answer:
        assert answer.status == 303
        return answer.headers["Location"]


async def agree(url: str, sub: str) -> str:
    """Log in at the provider. Returns where it sends the browser back to."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data={"sub": sub}, allow_redirects=False) as answer,
    ):
        assert answer.status == 302, await answer.text()
        return answer.headers["Location"]


async def come_back(it: Client, url: str) -> str:
    """Where the console sends the browser after the provider has sent it back."""
    async with it.session.get(url, allow_redirects=False) as answer:
        assert answer.status == 303
        return answer.headers["Location"]


async def log_in(it: Client, sub: str) -> int:
    back = await come_back(it, await agree(await go(it), sub))
    return await it.log_in(back.partition("#token=")[2])


async def test_a_persons_groups_are_the_role_and_the_person_is_on_record(it: Client, home: Path) -> None:
    url = await go(it)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{it.url}/login/oidc/callback"
    assert len(asked["state"]) >= 40 <= len(asked["nonce"])
    assert await log_in(it, "1") == 200
    async with it.socket(await it.ticket()) as link:
        await link.receive()
    assert await log_in(it, "2") == 200
    second, first = rows(home, "login")
    assert first["actor"].startswith("browser:oidc:ada.")
    assert second["actor"].startswith("browser:oidc:eve.")
    [session] = rows(home, "browser-session")
    assert session["actor"] == first["actor"]


@pytest.mark.parametrize("sub", ["3", "4", "5", "somebody-new"])
async def test_who_has_no_role_or_no_proper_name_is_not_let_in(it: Client, home: Path, sub: str) -> None:
    assert await come_back(it, await agree(await go(it), sub)) == "/login#failed=oidc"
    [row] = rows(home, "login")
    assert (row["actor"], row["outcome"]) == ("browser:@127.0.0.1", "denied")


async def test_a_way_back_works_once_and_for_the_browser_that_went(it: Client, server: Served) -> None:
    back = await agree(await go(it), "1")
    async with client(server) as another:
        assert await come_back(another, back) == "/login#failed=oidc", "somebody else's link logs nobody in"
    assert await come_back(it, back) == "/login#failed=oidc", "its state is used up"
    back = await agree(await go(it), "1")
    handed = (await come_back(it, back)).partition("#token=")[2]
    assert handed
    assert await come_back(it, back) == "/login#failed=oidc", "a replay"
    async with client(server) as another:
        assert await another.log_in(handed) == 403, "what was handed to one browser is nothing in another"
    assert await it.log_in(handed) == 403, "and is used up by that"
    assert await log_in(it, "1") == 200
    used = (await come_back(it, await agree(await go(it), "1"))).partition("#token=")[2]
    assert await it.log_in(used) == 200
    assert await it.log_in(used) in (403, 429)


async def test_forged_ways_back_let_nobody_in(it: Client, server: Served) -> None:
    back = urlsplit(await agree(await go(it), "1"))
    given = {name: values[0] for name, values in parse_qs(back.query).items()}
    callback = f"{it.url}/login/oidc/callback"
    forged = [
        {}, {"state": "x", "code": given["code"]}, {"code": given["code"]}, {"state": "", "code": given["code"]},
        {"error": "access_denied", "state": "x"},
    ]  # fmt: skip
    for query in forged:
        assert await come_back(it, f"{callback}?{urlencode(query)}") == "/login#failed=oidc", query
    doubled = f"{callback}?{urlencode(given)}&{urlencode({'code': 'x'})}"
    assert await come_back(it, doubled) == "/login#failed=oidc"


async def test_a_cookie_that_is_no_text_lets_nobody_in(it: Client, server: Served) -> None:
    back = urlsplit(await agree(await go(it), "1"))
    cookie = next(one.key for one in it.session.cookie_jar if "_way_" in one.key).encode()
    host = it.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        head = f"GET {back.path}?{back.query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        link.sendall(head.encode() + b"Cookie: " + cookie + b"=\xff\xfe\r\n\r\n")
        answer = await asyncio.to_thread(link.makefile("rb").read)
    assert answer.startswith(b"HTTP/1.1 303 ")
    assert b"Location: /login#failed=oidc\r\n" in answer


async def test_the_code_of_another_login_is_not_taken(it: Client, server: Served) -> None:
    """PKCE: an attacker who got hold of a victim's code puts it into a login of his own."""
    async with client(server) as victim:
        stolen = parse_qs(urlsplit(await agree(await go(victim), "1")).query)["code"][0]
    own = parse_qs(urlsplit(await agree(await go(it), "2")).query)
    query = urlencode({"state": own["state"][0], "code": stolen})
    assert await come_back(it, f"{it.url}/login/oidc/callback?{query}") == "/login#failed=oidc"
    assert server.said("the code_verifier is wrong")


async def test_a_token_with_another_nonce_is_not_taken(it: Client, server: Served) -> None:
    url = urlsplit(await go(it))
    asked = {name: values[0] for name, values in parse_qs(url.query).items()} | {"nonce": "another-nonce"}
    back = await agree(url._replace(query=urlencode(asked)).geturl(), "1")
    assert await come_back(it, back) == "/login#failed=oidc"
    assert server.said("nonce")


async def test_nothing_that_is_asked_for_decides_where_one_is_sent(it: Client, issuer: str) -> None:
    evil = "https://evil.example/"
    for name in ("next", "redirect_uri", "return_to", "url", "state", "post_logout_redirect_uri"):
        url = await go(it, f"?{urlencode({name: evil})}")
        assert url.startswith(issuer + "/")
        assert "evil" not in url
        location = await come_back(it, f"{it.url}/login/oidc/callback?{urlencode({name: evil})}")
        assert location == "/login#failed=oidc"
    assert await log_in(it, "1") == 200
    answer = await it.post("/logout", {"elsewhere": evil, "next": evil})
    elsewhere = (await answer.json())["elsewhere"]
    assert elsewhere.startswith(issuer + "/oauth2/end_session?")
    assert "evil" not in elsewhere
    assert parse_qs(urlsplit(elsewhere).query)["post_logout_redirect_uri"] == [f"{it.url}/login"]
    answer = await it.post("/ticket", {"columns": 80, "rows": 24})
    assert answer.status == 401


async def test_another_site_cannot_begin_a_login(it: Client) -> None:
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        async with it.session.get(f"{it.url}/login/oidc", headers=headers, allow_redirects=False) as answer:
            assert answer.status == 403
        embedded = headers | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        async with it.session.get(f"{it.url}/login/oidc/callback", headers=embedded, allow_redirects=False) as answer:
            assert answer.status == 403


async def test_the_page_offers_the_provider(it: Client) -> None:
    async with it.session.get(f"{it.url}/login/ways") as answer:
        assert (await answer.json())["oidc"] == "Example"


def test_a_provider_with_another_name_is_not_talked_to(issuer: str) -> None:
    everybody = (GroupRole(group="*", role="viewer"),)
    provider = Provider(
        OidcOptions(issuer=f"{issuer}/", client_id="x", roles=everybody), "", "http://127.0.0.1/callback"
    )
    with pytest.raises(ProviderFailed, match="calls itself"):
        provider.begin()
    provider = Provider(
        OidcOptions(issuer="http://127.0.0.1:9", client_id="x", roles=everybody), "", "http://127.0.0.1/"
    )
    with pytest.raises(ProviderFailed, match="cannot be read"):
        provider.begin()


@requires("chromium")
async def test_in_a_browser_to_the_provider_and_back_and_out_again(page, server: Served, issuer: str) -> None:
    await page.goto(server.url + "/login")
    await page.click("text=Log in with Example")
    await page.wait_for_url(re.compile(f"{issuer}/oauth2/authorize"))
    await page.click("button:has-text('2')")
    await sees(page, "READ-ONLY")
    assert page.url == server.url + "/"
    async with asyncio.timeout(10):
        assert await page.evaluate("localStorage.getItem('sandbox-console.key')")
    await page.goto(server.url + "/sessions")
    await page.click("#logout")
    await page.wait_for_url(re.compile(f"{issuer}/oauth2/end_session"))


def test_what_cannot_work_or_is_not_safe_is_refused_at_the_start() -> None:
    everybody = (GroupRole(group="*", role="viewer"),)
    for wrong, word in (
        ({"issuer": "http://login.example"}, "https"), ({"issuer": "login.example"}, "https"),
        ({"scopes": ("profile",)}, "openid"), ({"roles": ()}, "nobody"),
        ({"roles": (GroupRole(group="x", role="viewer", labels=("team",)),)}, "KEY=VALUE"),
    ):  # fmt: skip
        options = {"issuer": "https://login.example", "client_id": "x", "roles": everybody} | wrong
        with pytest.raises(ConfigError, match=word):
            OidcOptions(**options).check()


def test_claims_give_the_first_role_that_fits_and_only_a_verified_address_is_a_name() -> None:
    roles = (GroupRole(group="a", role="admin"), GroupRole(group="b", role="viewer", labels=("team=x",)))
    options = OidcOptions(issuer="https://x", client_id="x", roles=roles, name_claim="email")
    assert options.access({"groups": ["b", "a"]}) == Access("admin")
    assert options.access({"groups": "b"}) == Access("viewer", {"team": "x"})
    for claims in ({}, {"groups": None}, {"groups": {"a": 1}}, {"groups": ["A"]}, {"groups": [["a"]]}, {"groups": "*"}):
        assert options.access(claims) is None, claims
    assert options.name({"email": "a@b", "email_verified": True}) == "a@b"
    for claims in (
        {"email": "a@b"},
        {"email": "a@b", "email_verified": "true"},
        {"email": ["a@b"], "email_verified": True},
    ):
        assert options.name(claims) == "", claims


class NoProvider:
    """It sends everybody to one address, and lets whoever comes back in."""

    count = 0

    def begin(self) -> Attempt:
        self.count += 1
        return Attempt("https://id.example/", f"state {self.count}", "nonce", "verifier")

    def finish(self, attempt: Attempt, code: str) -> tuple[dict[str, object], str]:
        return {"sub": code, "groups": ["ops"]}, "id token"


async def test_whoever_begins_very_many_logins_takes_nobodys_place() -> None:
    options = OidcOptions(
        issuer="https://id.example", client_id="c", roles=(GroupRole(group="*", role="viewer"),), name_claim="sub"
    )
    logins = OidcLogins(options, NoProvider())
    _, cookie = await logins.begin()
    for _ in range(3 * MOST):
        _, other = await logins.begin()
    for state in range(3 * MOST):
        with pytest.raises(OidcFailed):
            await logins.come_back(f"made up {state}", "code", "")
    for wrong in (other, cookie[:-8], cookie[:40] + other[40:], "=", "\udcff"):
        with pytest.raises(OidcFailed, match="did not begin it"):
            await logins.come_back("state of nobody", "code", wrong)
    assert logins.redeem(await logins.come_back("state 1", "ada", cookie), cookie)
    with pytest.raises(OidcFailed, match="used before"):
        await logins.come_back("state 1", "ada", cookie)
