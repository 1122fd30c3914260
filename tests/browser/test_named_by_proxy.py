"""A trusted proxy names the user; nobody else can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import TOKEN, Client, Served, serving
from tests.browser.test_proxy import own_port
from tests.browser.test_users import home, named, users
from tests.browser.test_visit_records import CONSOLE, rows

from sandbox_console.errors import UsageError
from sandbox_console.web import ServeOptions

__all__ = ["home"]

PUBLIC = "tools.example"
BY_PROXY = {"Host": PUBLIC, "Origin": f"https://{PUBLIC}", "X-Forwarded-Proto": "https"}


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Served]:
    users(home, "add", "ada", "--role", "operator", "--no-password")
    users(home, "add", "eve", "--no-password")
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token"), "--trust-proxy", "127.0.0.1"]
    argv += ["--user-header", "X-Forwarded-User", "--hostname", PUBLIC]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        yield running


@asynccontextmanager
async def coming_from(server: Served, address: str) -> AsyncIterator[Client]:
    """A client at this address of the machine, with a jar that sends cookies whatever the Host is."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Client(session, f"http://127.0.0.1:{own_port(server)}")


async def post(it: Client, path: str, body: object, headers: dict[str, str]) -> aiohttp.ClientResponse:
    return await it.session.post(it.url + path, json=body, headers=headers)


async def enter(it: Client, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Log in as the page does when a proxy names somebody. Returns the status, and the headers of a page that is in."""
    answer = await post(it, "/login", {"proxy": True}, headers | {"X-Sandbox-Console": "login"})
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in answer.cookies.items())
    key = (await answer.json())["key"] if answer.status == 200 else ""
    return answer.status, {"Cookie": cookies, "X-Sandbox-Console": key}


async def test_who_the_proxy_names_is_in_until_it_names_somebody_else(server: Served, home: Path) -> None:
    ada, eve = (BY_PROXY | {"X-Forwarded-User": name} for name in ("ada", "eve"))
    async with coming_from(server, "127.0.0.1") as it:
        ways = await (await it.session.get(it.url + "/login/ways", headers=ada)).json()
        assert ways["proxy"] == "ada"
        status, held = await enter(it, ada)
        assert status == 200
        order = {"columns": 80, "rows": 24}
        assert (await post(it, "/ticket", order, ada | held)).status == 200
        for other in (BY_PROXY, eve, BY_PROXY | {"X-Forwarded-User": "ada2"}, BY_PROXY | {"X_Forwarded_User": "ada"}):
            assert (await post(it, "/ticket", order, other | held)).status == 401
        users(home, "rm", "ada")
        assert (await post(it, "/ticket", order, ada | held)).status == 401
        assert (await enter(it, ada))[0] == 403
    wrong, good = rows(home, "login")
    assert good["actor"].startswith("browser:ada.")
    assert (wrong["outcome"], named(home, wrong)) == ("denied", "ada")


async def test_names_that_are_no_ones_are_refused_and_recorded(server: Served, home: Path) -> None:
    async with coming_from(server, "127.0.0.1") as it:
        for name in ("mallory", "ADA", "ada,eve", "ada%00", "a" * 5000):
            assert (await enter(it, BY_PROXY | {"X-Forwarded-User": name}))[0] == 403, name[:20]
        assert (await enter(it, BY_PROXY))[0] == 403
        assert (await enter(it, BY_PROXY | {"X-Forwarded-User": ""}))[0] == 403
        twice = [
            *(BY_PROXY | {"X-Sandbox-Console": "login"}).items(),
            ("X-Forwarded-User", "ada"),
            ("X-Forwarded-User", "eve"),
        ]
        answer = await it.session.post(it.url + "/login", json={"proxy": True}, headers=twice)
        assert answer.status == 400
    told = [named(home, row) for row in rows(home, "login")]
    assert told[-1] == "mallory"
    assert len(told) == 5, "of a flood, five a minute are recorded"


SPOOFED = [
    {"X-Forwarded-User": "ada"},
    {"X-Forwarded-User": "ada", "X-Forwarded-Proto": "https"},
    {"X-Forwarded-User": "ada", "X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"},
    {"X-Forwarded-User": "ada", "Forwarded": "for=127.0.0.1;proto=https;host=tools.example"},
    {"X-Forwarded-User": "ada", "X-Forwarded-Host": PUBLIC, "X-Forwarded-Server": PUBLIC, "Via": "1.1 proxy"},
    {"x-forwarded-user": "ada", "X-Forwarded-Proto": "https", "X-Forwarded-For": "127.0.0.1, 127.0.0.1"},
]


@pytest.mark.parametrize("spoofed", SPOOFED)
async def test_from_any_other_address_the_header_is_nothing(
    server: Served, home: Path, spoofed: dict[str, str]
) -> None:
    async with coming_from(server, "127.0.0.2") as it:
        own = {"Origin": it.url}
        ways = await (await it.session.get(it.url + "/login/ways", headers=spoofed)).json()
        assert ways["proxy"] == ""
        assert (await enter(it, spoofed | own))[0] == 403
        assert (await enter(it, spoofed | own | {"Host": PUBLIC, "Origin": f"https://{PUBLIC}"}))[0] == 421
        answer = await post(it, "/login", {"token": TOKEN}, spoofed | own | {"X-Sandbox-Console": "login"})
        assert answer.status == 200, "the owner's token works as ever, and makes nobody of him"
    actors = {row["actor"] for row in rows(home, "login")}
    assert not [actor for actor in actors if "ada" in actor]


async def test_without_the_schemes_header_a_connection_is_not_the_proxys(server: Served) -> None:
    async with coming_from(server, "127.0.0.1") as it:
        status, _ = await enter(it, {"Origin": it.url, "X-Forwarded-User": "ada"})
        assert status == 403, "another user of the proxy's machine has the same address, but the Host is not public"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"user_header": "X-Forwarded-User"}, "needs a proxy"),
        ({"user_header": "X Y", "trust_proxy": ("127.0.0.1",), "names": (PUBLIC,)}, "cannot name users"),
        ({"user_header": "Cookie", "trust_proxy": ("127.0.0.1",), "names": (PUBLIC,)}, "cannot name users"),
        ({"user_header": "X-Forwarded-For", "trust_proxy": ("127.0.0.1",), "names": (PUBLIC,)}, "cannot name users"),
    ],
)
def test_options_that_would_let_anybody_in_are_refused(options: dict, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        ServeOptions(**options).check()


def test_a_proxy_that_any_account_of_the_machine_can_pretend_to_be_is_warned_of(
    server: Served, home: Path, tmp_path: Path
) -> None:
    assert server.said("every account of this machine")
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token"), "--user-header", "X-Forwarded-User"]
    argv += ["--socket", str(home / "page.sock"), "--hostname", PUBLIC]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        assert running.said("stop with")
        assert not any("every account" in line for line in [running.link, *running.lines])
