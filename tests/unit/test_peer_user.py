"""The user at the other end of a connection: one question to the kernel, or the tables in /proc."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.support.require import requires

from sandbox_console.web import peer_user
from sandbox_console.web.connections import owner_of
from sandbox_console.web.peer_user import End, user_at

STRANGER = 54321
HOLD = "import socket, sys; link = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"
WAYS = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("::1", "::1"),
    ("::", "127.0.0.1"),
    ("::", "::ffff:127.0.0.1"),
]
Ask = Callable[[End, End], int | None]


def by_kernel(peer: End, own: End) -> int | None:
    return peer_user._asked(peer, own)


def by_table(peer: End, own: End) -> int | None:
    return peer_user._listed(peer, own)


@pytest.fixture(params=WAYS, ids=" from ".join)
def way(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str, int]]:
    address, client = request.param
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as listening:
        yield listening, client, listening.getsockname()[1]


def ends(link: socket.socket) -> tuple[End, End]:
    return End.of(link.getpeername()), End.of(link.getsockname())


@requires("user")
@pytest.mark.parametrize("ask", [by_kernel, by_table, user_at])
def test_the_user_is_the_one_who_connected(way: tuple[socket.socket, str, int], ask: Ask) -> None:
    listening, client, port = way
    become = ["setpriv", "--reuid", str(STRANGER), "--clear-groups"]
    argv = [*become, "/usr/bin/python3", "-c", HOLD, client, str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd="/") as other, listening.accept()[0] as link:
        assert ask(*ends(link)) == STRANGER
        other.communicate(b"")
        assert ask(*ends(link)) is None, "a closed socket is shown as root's"
        assert not owner_of(link).startswith("uid")


@pytest.mark.parametrize("ask", [by_kernel, by_table, user_at])
def test_a_program_that_waits_on_the_port_of_a_closed_connection_is_not_its_owner(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as waiting:
        there, here = End.of(waiting.getsockname()), End.of(listening.getsockname())
        assert ask(there, here) is None


def test_where_the_kernel_answers_no_questions_the_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int | None:
        raise PermissionError

    monkeypatch.setattr(peer_user, "_asked", refused)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as link,
    ):
        assert owner_of(link) == f"uid {os.geteuid()}"


def test_the_table_is_not_read_where_the_kernel_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_user, "_listed", lambda *_: pytest.fail("17 ms with 10,000 connections"))
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as other,
        listening.accept()[0] as link,
    ):
        assert owner_of(link) == f"uid {os.geteuid()}"
        other.close()
        assert owner_of(link) == "127.0.0.1"
