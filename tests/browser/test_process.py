"""The app behind a session: what it is given, and that nothing of it is left."""

import json
import re
import signal
from pathlib import Path

from tests.browser.serving import TINY, TOKEN, alive, client, closed, eventually, raw, read_until, served_with_token


async def test_a_hung_app_and_its_child_are_ended_with_the_socket(tmp_path) -> None:
    with served_with_token(raw("hang"), tmp_path, resume_s=0.1) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                pids = _pids(await read_until(link, b" on\r\n"))
                assert all(alive(pid) for pid in pids)
        assert eventually(lambda: not any(alive(pid) for pid in pids), 15)


async def test_sigterm_ends_a_hung_app_too(tmp_path) -> None:
    with served_with_token(raw("hang"), tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            link = await it.socket(await it.ticket())
            pids = _pids(await read_until(link, b" on\r\n"))
            server.process.send_signal(signal.SIGTERM)
            assert await closed(link) == 4002
            assert server.process.wait(15) == 0
        assert not any(alive(pid) for pid in pids)


async def test_sigint_ends_the_server(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0


async def test_the_app_goes_when_its_server_is_killed(tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            link = await it.socket(await it.ticket())
            await read_until(link, b"count 0")
            pids = _children(server.process.pid)
            assert len(pids) == 1
            server.process.kill()
            await link.close()
        assert eventually(lambda: not alive(pids[0]))


async def test_the_environment_is_small_and_has_no_token(tmp_path) -> None:
    more = {
        "SANDBOX_CONSOLE_TOKEN": TOKEN + "x",
        "AWS_SECRET_ACCESS_KEY": "s",
        "PASSED": "p",
        "DOCKER_HOST": "unix:///x",
    }
    with served_with_token(raw("env"), tmp_path, environment=more, pass_env=["PASSED"], resume_s=0.1) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                seen = await read_until(link, b"]\r\n")
        names = json.loads(re.search(rb"env (\[.*\])", seen)[1])
        assert {"PATH", "HOME", "DOCKER_HOST", "PASSED", "SANDBOX_CONSOLE_ACTOR", "TEXTUAL_DRIVER"} <= set(names)
        assert not {"SANDBOX_CONSOLE_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(names)


async def test_an_app_that_fails_says_why_on_the_server_only(tmp_path) -> None:
    with served_with_token(raw("crash"), tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                assert await closed(link) == 4000
        assert server.said("exit code 1")
        assert server.said("it ␛]0;owned")


async def test_a_program_that_is_missing_is_told(tmp_path) -> None:
    with served_with_token(["/nowhere/app"], tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            for _ in range(10):  # more than the sessions allowed: a failed start takes no place
                async with it.socket(await it.ticket()) as link:
                    assert await closed(link) == 1011
        assert server.said("cannot be started")


async def test_a_dropped_socket_finds_its_app_again(tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        async with client(server) as it, client(server) as other:
            await it.log_in()
            link = await it.socket(await it.ticket())
            view = json.loads((await link.receive()).data)[1]
            await read_until(link, b"count 0")
            await link.send_str('["stdin", "+"]')
            await read_until(link, b"count 1")
            await link.close()
            async with it.socket(await it.ticket(view)) as again:
                assert json.loads((await again.receive()).data) == ["ready", view]
                await read_until(again, b"count 1")
            await other.log_in()
            answer = await other.post("/ticket", {"columns": 80, "rows": 24, "view": view})
            assert await answer.json() == {"gone": "it belongs to another login"}
            async with other.socket(await other.ticket()) as stranger:
                assert json.loads((await stranger.receive()).data)[1] != view
                await read_until(stranger, b"count 0")


async def test_a_second_tab_takes_the_session_over(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            first = await it.socket(await it.ticket())
            view = json.loads((await first.receive()).data)[1]
            second = await it.socket(await it.ticket(view))
            assert await closed(first) == 4001
            await second.send_str('["stdin", "hello"]')
            await read_until(second, b"got hello")
            await second.close()


def _pids(seen: bytes) -> list[int]:
    return [int(word) for word in re.search(rb"pids (\d+) (\d+)", seen).groups()]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
