"""A console whose action is slow, for a test that kills it: prints each row that it was promised, then goes on."""

from __future__ import annotations

import asyncio
import sys

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Exec, Start, Stop
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

REF = SandboxRef("fake", "local", "box")


class Telling(FakeBackend):
    """Says which permit it holds before its slow work begins."""

    async def exec(self, permit, request, secrets):
        say(f"attempt {permit.audit_id}")
        return await super().exec(permit, request, secrets)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(slow_s: float) -> None:
    backend = Telling([Sandbox(REF, "box", Status.RUNNING)])
    async with open_console(Config(), backends=[backend]) as console:
        while True:
            for action in (Stop(REF), Start(REF)):
                result = await console.perform(action).result()
                say(f"done {result.audit_id}")
            try:
                result = await console.perform(Exec(REF, ("sleep", str(slow_s)))).result()
                say(f"done {result.audit_id}")
            except ConsoleError as error:
                say(f"error {error.code}")
                return


asyncio.run(main(float(sys.argv[1])))
