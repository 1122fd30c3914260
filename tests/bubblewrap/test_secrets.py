from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make, until

from sandbox_console.backends.bubblewrap.supervise import events
from sandbox_console.errors import ConsoleError
from sandbox_console.model.secret import ResolvedSecret

_VALUE = "tOp-sEcReT-5f1e"
ENV, FILE = ResolvedSecret("TOKEN", _VALUE), ResolvedSecret("cert", _VALUE + "\n", inject="file")


async def test_secrets_are_in_the_sandbox_and_nowhere_else(make: Make, state_dir: Path) -> None:
    box = await make("sh", "-c", 'echo "$TOKEN" | wc -c; sleep 1000', secrets=(ENV, FILE))
    await until(box.text)
    assert await box.text() == b"16\n"
    shown = await box.sh(
        'echo "$TOKEN"; stat -c %a /run/secrets /run/secrets/cert; cat /run/secrets/cert', secrets=[ENV]
    )
    assert shown == f"{_VALUE}\n700\n400\n{_VALUE}\n"
    process = await box.exec("sleep", "100", secrets=[ENV])
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            assert _VALUE.encode() not in Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
    found = subprocess.run(["grep", "-rla", _VALUE, state_dir], capture_output=True, text=True, check=False)
    assert found.stdout == "", "no file of the state folder holds it"
    assert box.raw and "TOKEN" in (box.folder / "spec.json").read_text(), "its name is kept"
    await process.kill()


async def test_the_programs_around_do_not_have_it_in_their_environment(make: Make) -> None:
    box = await make(secrets=(ENV,))
    for pid in (box.raw["supervisor"], box.raw["init"]):
        if os.geteuid() != 0 and pid == box.raw["supervisor"]:
            with pytest.raises(PermissionError):
                Path(f"/proc/{pid}/environ").read_bytes()
        else:
            assert _VALUE.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_loaders_variable_acts_inside_only(make: Make, open_folder: Path) -> None:
    box = await make(env={"LD_PRELOAD": str(open_folder / "nosuch.so"), "LD_LIBRARY_PATH": "/workspace"})
    assert "nosuch.so" in await box.sh("echo ok")
    assert Path(f"/proc/{box.raw['init']}/environ").read_bytes() == b""


PASTED = "hunter2-Tr0ub4dor/x9zqy"


@pytest.mark.parametrize("word", [PASTED, f"./{PASTED}", f"/usr/bin/{PASTED}", "/hunter2-Tr0/ub4dor", "hunter2!"])
async def test_what_is_pasted_as_a_program_is_in_no_file_of_the_sandbox(make: Make, word: str) -> None:
    box = await make("sleep", "1000")
    with suppress(ConsoleError):
        await box.run(word)
    with suppress(ConsoleError):
        await (await box.shell(shell=word)).close()
    await box.run("/bin/sh", "-c", "true")
    last = word.rpartition("/")[2].encode()
    found = [path for path in box.folder.parent.rglob("*") if path.is_file() and last in path.read_bytes()]
    assert found == []
    told = [one.detail async for one in box.backend.guest_events(box.ref, since=None, follow=False)]
    assert set(told) >= {events.WITHHELD, "sh"}
    assert not any(part in " ".join(told) for part in ("hunter2", "ub4dor", "x9zqy"))
