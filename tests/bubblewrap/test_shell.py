from __future__ import annotations

import asyncio

import pytest
from tests.bubblewrap.conftest import Make, host_pids, until

from sandbox_console.errors import BackendError


async def _expect(shell, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        try:
            data = await asyncio.wait_for(shell.read(), 30)
        except TimeoutError:
            raise AssertionError(seen) from None
        assert data, seen
        seen += data
    return seen


async def test_a_shell_is_on_a_terminal_of_the_sandbox(make: Make) -> None:
    box = await make()
    shell = await box.shell(cols=101, rows=37, term="xterm-256color")
    await shell.write(b"tty; stty size; echo $TERM; echo d''one\n")
    seen = await _expect(shell, b"done")
    assert b"/dev/pts/" in seen
    assert b"37 101" in seen
    assert b"xterm-256color" in seen
    await shell.resize(120, 40)
    await shell.write(b"stty size\n")
    await _expect(shell, b"40 120")
    await shell.write(b"exit 9\n")
    assert (await shell.wait()).code == 9
    while await asyncio.wait_for(shell.read(), 30):
        pass
    await shell.close()


async def test_it_has_the_folder_and_the_variables_asked_for(make: Make) -> None:
    box = await make()
    shell = await box.shell(shell="/bin/sh", workdir="/tmp", env={"CHOSEN": "two words"})
    await shell.write(b"echo in=$PWD var=[$CHOSEN]; echo d''one\n")
    assert b"in=/tmp var=[two words]" in await _expect(shell, b"done")
    await shell.close()


async def test_control_keys(make: Make) -> None:
    box = await make()
    shell = await box.shell()
    await shell.write(b"sleep 90909; echo code=$?\n")
    await until(lambda: host_pids("sleep\x0090909"))
    await shell.write(b"\x03")
    await shell.write(b"PS1=af''ter\n")
    await _expect(shell, b"after")  # as a prompt: one that comes before the shell reads keys would be lost on it
    await shell.write(b"\x04")
    assert (await asyncio.wait_for(shell.wait(), 30)).code is not None
    await shell.close()


async def test_vi_and_top_draw(make: Make) -> None:
    box = await make()
    shell = await box.shell()
    await shell.write(b"top -n 1 | head -3; vi -u NONE /tmp/f\n")
    await _expect(shell, b"~")
    await shell.write(b"ihello\x1b:wq\n")
    await _expect(shell, b"written")
    await shell.write(b"cat /tmp/f; echo d''one\n")
    await _expect(shell, b"done")
    assert await box.sh("cat /tmp/f") == "hello\n"
    await shell.close()


async def test_closing_ends_the_whole_tree_and_wakes_a_reader(make: Make) -> None:
    box = await make()
    shell = await box.shell()
    await shell.write(b"trap '' HUP; (trap '' HUP; setsid sleep 81818) & sleep 81818\n")
    await until(lambda: len(host_pids("sleep\x0081818")) == 2)
    while b"81818" not in await shell.read():
        pass

    async def drain() -> None:
        while await shell.read():
            pass

    reading = asyncio.create_task(drain())
    await asyncio.sleep(0.05)
    await shell.close()
    await shell.close()
    await asyncio.wait_for(reading, 30)
    assert not host_pids("sleep\x0081818")


async def test_a_shell_that_is_not_there_is_an_error(make: Make) -> None:
    box = await make()
    with pytest.raises(BackendError, match="nosuch"):
        await box.shell(shell="/bin/nosuch")
