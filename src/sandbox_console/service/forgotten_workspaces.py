"""Forgets the workspaces of removed sandboxes, once somebody has looked at what their guests left there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from sandbox_console.errors import ConsoleError, Denied, NotFound
from sandbox_console.model.audit import Outcome
from sandbox_console.service.console import Console
from sandbox_console.service.gate.description import origin
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.removed_workspaces import RemovedWorkspace

VERB = "forget"
"""The action in the audit log."""


async def removed_workspaces(console: Console) -> dict[str, RemovedWorkspace]:
    """The workspaces of removed sandboxes that are still remembered, by path."""
    await console.ground()
    return dict((await asyncio.to_thread(shared_folders.everywhere, _state(console))).removed)


async def forget(console: Console, folders: Sequence[str]) -> list[str]:
    """Forget some of them: links in them are the operator's from now on. Returns their paths.

    Raises NotFound, Denied if the policy is read-only, ConsoleError.
    """
    known = await removed_workspaces(console)
    paths = [_known(folder, known) for folder in folders]
    journal = await console.audit_log.journal()
    body = {"origin": origin(), "folders": paths}
    if console.read_only:
        why = Denied("the policy is read-only", rule="read_only")
        await journal.refuse(VERB, "", "", body, Outcome.DENIED, {"code": why.code, "error": why.message})
        raise why
    began, permit = time.monotonic_ns(), await journal.begin(VERB, "", "", body)
    outcome, failure = Outcome.OK, {}
    try:
        await asyncio.to_thread(shared_folders.forget, _state(console), paths)
    except OSError as error:
        outcome, failure = Outcome.FAILED, {"error": error.strerror or type(error).__name__}
        raise ConsoleError(f"it cannot be stored: {failure['error']}") from None
    except ConsoleError as error:
        outcome, failure = Outcome.FAILED, {"code": error.code, "error": error.message}
        raise
    finally:
        await journal.finish(permit, outcome, (time.monotonic_ns() - began) // 1000, failure)
    return paths


def _known(folder: str, known: dict[str, RemovedWorkspace]) -> str:
    for path in (os.path.normpath(Path.cwd() / folder), os.path.realpath(folder)):
        if path in known:
            return path
    raise NotFound(f"no removed sandbox had the workspace {folder}", hint="sandbox-console forget lists those that had")


def _state(console: Console) -> Path:
    return console.audit_log.path.parents[1]
