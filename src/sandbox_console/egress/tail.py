"""Follows the records as they are written, for the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from sandbox_console.egress.records import Follower
from sandbox_console.model.egress import EgressRecord

LOOK_S = 0.25


async def follow(folder: Path, since: float | None, following: bool) -> AsyncGenerator[EgressRecord, None]:
    """The records of a folder, oldest first. With ``following`` it goes on until the folder is removed."""
    reader = Follower(folder)
    while True:
        there = folder.is_dir()
        for record in await asyncio.to_thread(reader.poll, since):
            yield record
        if not following or not there:
            return
        await asyncio.sleep(LOOK_S)
