"""A console with a real bubblewrap sandbox and a command in flight, for a test that kills it."""

from __future__ import annotations

import asyncio
import sys

from sandbox_console.model.action import Create, Exec
from sandbox_console.model.log import Stream
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, ExecIO, open_console


async def main(name: str) -> None:
    async with open_console(Config(), only_backend="bubblewrap") as console:
        spec = SandboxSpec(name, image="host", command=("sh", "-c", "while :; do echo tick; sleep 0.1; done"))
        made = await console.perform(Create(spec, "bubblewrap", "local")).result()
        assert made.ref is not None

        async def say(_: Stream, data: bytes) -> None:
            sys.stdout.write(f"in flight {made.ref} {data.decode()}")
            sys.stdout.flush()

        await console.perform(Exec(made.ref, ("sh", "-c", "echo up; sleep 60")), io=ExecIO(on_output=say)).result()


asyncio.run(main(sys.argv[1]))
