from __future__ import annotations

import asyncio

import pytest
from tests.support.engine import SHELLLESS
from tests.support.require import requires

from sandbox_console.backends.docker.engine import Engine
from sandbox_console.errors import Conflict, Unsupported
from sandbox_console.model.action import OpenShell

pytestmark = requires("docker")


async def until(terminal, marker):
    seen = b""
    async with asyncio.timeout(60):
        while marker not in seen:
            data = await terminal.read()
            assert data, seen
            seen += data
    return seen


@pytest.fixture
def enter(backend, permit):
    async def one(ref, **fields):
        return await backend.shell(await permit("shell"), OpenShell(ref, **fields), ())

    return one


async def test_a_shell_has_a_terminal_of_the_size_asked_for(make, enter):
    ref = await make()
    terminal = await enter(ref, cols=101, rows=33)
    await terminal.write(b"stty size; echo $TERM; tty; echo E''ND\n")
    seen = await until(terminal, b"END")
    assert b"33 101" in seen
    assert b"xterm-256color" in seen
    await terminal.resize(77, 22)
    await terminal.write(b"stty size; echo E''ND2\n")
    assert b"22 77" in await until(terminal, b"END2")
    await terminal.write(b"exit 7\n")
    while await terminal.read():
        pass
    assert (await terminal.wait()).code == 7
    await terminal.close()


async def test_it_has_the_folder_and_the_variables_asked_for(make, enter):
    terminal = await enter(await make(), workdir="/tmp", env={"CHOSEN": "two words"})
    await terminal.write(b"echo in=$PWD var=[$CHOSEN]; echo E''ND\n")
    assert b"in=/tmp var=[two words]" in await until(terminal, b"END")
    await terminal.close()


async def test_closing_hangs_up_and_leaves_nothing(make, enter, docker_engine):
    ref = await make()
    terminal = await enter(ref)
    await terminal.write(b"(trap '' HUP; exec sleep 981) &\nsetsid sleep 982 &\nsleep 983 & echo R''EADY\n")
    await until(terminal, b"READY")
    async with asyncio.timeout(30):  # a subshell may not be what it becomes yet
        while not all(f"sleep {n}" in docker_engine.docker("top", ref.id, "-eo", "pid,args") for n in (981, 982, 983)):
            await asyncio.sleep(0.1)
    await terminal.close()
    await terminal.close()
    left = docker_engine.docker("top", ref.id, "-eo", "pid,args")
    assert not [n for n in ("981", "982", "983", "/bin/sh") if n in left], left
    assert (await terminal.wait()).code in (129, 137)
    assert await terminal.read() == b""


async def test_a_shell_that_is_named_is_used_and_one_that_is_missing_is_said(make, enter, docker_engine):
    ref = await make()
    terminal = await enter(ref, shell="/bin/ash", user="root")
    await terminal.write(b"id -u; echo E''ND\n")
    assert b"\n0\r\n" in await until(terminal, b"END")
    assert "/bin/ash" in docker_engine.docker("top", ref.id, "-eo", "pid,args")
    await terminal.close()
    bare = await make(image=SHELLLESS, command=("sleep", "1000"))
    with pytest.raises(Unsupported, match="has no shell"):
        await enter(bare)
    missing = await enter(ref, shell="/bin/zsh")
    while await missing.read():
        pass
    assert (await missing.wait()).code == 127
    await missing.close()


async def test_a_stopped_sandbox_has_no_shell(make, enter):
    ref = await make(start=False)
    with pytest.raises(Conflict):
        await enter(ref)


async def test_a_frozen_engine_loses_neither_a_size_nor_what_is_typed(make, enter, engine, monkeypatch):
    """It is frozen for longer than a request may take, and more is typed than its socket holds."""
    terminal = await enter(await make())
    typed = [b"%06d\n" % number * 20 for number in range(100_000, 115_000)]
    check = b"uniq -c | awk '$1 != 20 || $2 - 100000 != n++ { print \"bad\" }'"
    await terminal.write(
        b"stty -echo; echo R''EADY; head -n %d | %s; stty size; echo E''ND\n" % (20 * len(typed), check)
    )
    await until(terminal, b"READY")
    call = Engine.call

    async def type_all():
        for line in typed:
            await terminal.write(line)

    engine.freeze()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "call", lambda self, *words, **how: call(self, *words, **how | {"timeout_s": 0.3}))
            await asyncio.gather(terminal.resize(100, 30), terminal.resize(101, 31), terminal.resize(102, 32))
            typing = asyncio.create_task(type_all())
            await asyncio.wait({typing}, timeout=3)
            assert not typing.done()
    finally:
        engine.thaw()
    seen = await until(terminal, b"END")
    assert b"32 102" in seen
    assert b"bad" not in seen
    await typing
    await terminal.close()
