"""Shipping to a real PostgreSQL: exactly once, whoever dies on the way."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.audit.conftest import SMALL, act
from tests.support.require import requires

from sandbox_console.audit import ship
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout

pytestmark = requires("postgres")


class Server:
    """A PostgreSQL of one's own on a Unix socket, and a user of it that may only insert."""

    def __init__(self, folder: Path, bin_: Path) -> None:
        self.folder, self._bin = folder, bin_
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        self.dsn = f"postgresql://shipper:a-password-of-its-own@/log?host={folder}"

    def run(self, *words: str) -> str:
        command = [*self._as, str(self._bin / words[0]), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=90)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
        self.run(
            "pg_ctl", "-D", f"{self.folder}/data", "-w", "-t", "60", "-l", f"{self.folder}/log", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-t", "60", "-m", mode, "stop")

    def sql(self, text: str) -> str:
        return self.run("psql", "-h", str(self.folder), "-d", "log", "-Atqc", text).strip()


@pytest.fixture(scope="module")
def made():
    bin_ = max(Path("/usr/lib/postgresql").glob("*/bin"))
    folder = Path(f"/var/tmp/sandbox-console-pg-{os.getpid()}")
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
    server = Server(folder, bin_)
    server.run("initdb", "-D", f"{folder}/data", "-A", "trust", "--no-sync")
    server.start()
    try:
        server.run("createdb", "-h", str(folder), "log")
        server.sql(ship.TABLE)
        server.sql("CREATE USER shipper PASSWORD 'a-password-of-its-own'")
        server.sql("GRANT INSERT ON sandbox_console_audit TO shipper")
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


@pytest.fixture
def server(made):
    made.sql("TRUNCATE sandbox_console_audit")
    return made


async def write(path, count):
    journal = await Journal.open(path, "test", SMALL)
    await act(journal, count)
    await journal.close()


def whole(server):
    return server.sql("SELECT count(*), count(DISTINCT seq), coalesce(max(seq), 0) FROM sandbox_console_audit")


async def test_every_row_of_every_segment_arrives_once_and_as_it_is(server, tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 300)
    assert len(Layout(path).indices()) > 1
    sent = await ship.ship(path, server.dsn)
    assert whole(server) == f"{sent}|{sent}|{sent}"
    assert await ship.ship(path, server.dsn) == 0
    await write(path, 10)
    assert await ship.ship(path, server.dsn) == 20
    broken = server.sql(
        "SELECT count(*) FROM (SELECT prev, lag(hash) OVER (ORDER BY seq) AS before FROM sandbox_console_audit) AS r "
        "WHERE before IS NOT NULL AND prev <> before"
    )
    assert broken == "0", "the chain holds in the copy too"


async def test_a_lost_cursor_sends_again_and_doubles_nothing(server, tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 20)
    await ship.ship(path, server.dsn)
    Layout(path).cursor.unlink()
    assert await ship.ship(path, server.dsn) == 40
    assert whole(server) == "40|40|40"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_console_that_dies_on_the_way_loses_and_doubles_nothing(server, tmp_path, monkeypatch, when):
    path = tmp_path / "audit.db"
    await write(path, 60)
    monkeypatch.setattr("sandbox_console.audit.export._AT_ONCE", 25)
    moved = ship._move
    for deaths in range(3):
        calls = 0

        def die(cursor, console, seq, deaths=deaths):
            nonlocal calls
            calls += 1
            if calls > deaths % 2:
                if when == "after":
                    moved(cursor, console, seq)
                raise KeyboardInterrupt  # as a kill: nothing behind it runs
            moved(cursor, console, seq)

        monkeypatch.setattr(ship, "_move", die)
        with pytest.raises(KeyboardInterrupt):
            await ship.ship(path, server.dsn)
    monkeypatch.setattr(ship, "_move", moved)
    await ship.ship(path, server.dsn)
    assert whole(server) == "120|120|120"


async def test_a_server_that_dies_is_told_and_shipping_goes_on_when_it_is_back(server, tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 30)
    await ship.ship(path, server.dsn)
    server.stop("immediate")
    try:
        await write(path, 5)
        with pytest.raises(ship.ShipFailed) as caught:
            await ship.ship(path, server.dsn)
        assert "a-password-of-its-own" not in caught.value.message + caught.value.hint
    finally:
        server.start()
    assert await ship.ship(path, server.dsn) == 10
    assert whole(server) == "70|70|70"


async def test_two_consoles_keep_apart(server, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        await write(tmp_path / name / "audit.db", 10)
    await asyncio.gather(*(ship.ship(tmp_path / name / "audit.db", server.dsn) for name in ("a", "b")))
    assert server.sql("SELECT count(*), count(DISTINCT console_uuid) FROM sandbox_console_audit") == "40|2"


async def test_a_shipper_may_not_change_what_was_sent(server, tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 3)
    await ship.ship(path, server.dsn)
    import asyncpg

    connection = await asyncpg.connect(server.dsn)
    for statement in ("UPDATE sandbox_console_audit SET actor = 'x'", "DELETE FROM sandbox_console_audit"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    await connection.close()
