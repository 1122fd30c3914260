"""Puts a file that a browser has sent into a sandbox: the question where, the policy's, and the transfer."""

from __future__ import annotations

import asyncio
import posixpath
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Upload
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.files.file_transfer import failure_text, upload
from sandbox_console.tui.text.formatting import shown_name, size

if TYPE_CHECKING:
    from sandbox_console.tui.app_base import BaseApp

FOLDER = "/tmp"  # noqa: S108 - a folder of the guest
"""The folder that is suggested if the sandbox's files are not shown."""


async def take_upload(app: BaseApp, path: Path, folder: str = "") -> None:
    """Ask for the folder of the selected sandbox, and upload the file. The browser's copy here is removed in the end.

    ``folder`` is the open folder of its files.
    """
    sandbox, name = app.selected, clean(path.name, cap=100)
    try:
        if sandbox is None:
            app.notify("Select a sandbox first.", title=f"upload {name}", severity="warning")
            return
        told = f"{name}, {size((await asyncio.to_thread(path.stat)).st_size)}, is put into this folder."
        title = f"Upload into {shown_name(sandbox)}"
        question = AskScreen(title, "a folder in the sandbox", folder or FOLDER, help_text=told)
        if typed := (await app.push_screen_wait(question)).strip():
            await _put(app, sandbox, path, posixpath.join("/", typed))
    finally:
        await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)


async def _put(app: BaseApp, sandbox: Sandbox, path: Path, folder: str) -> None:
    name, title = clean(path.name, cap=100), f"upload into {shown_name(sandbox)}"
    consent = await app.agreed(Upload(sandbox.ref, folder), sandbox)
    if consent is None:
        return
    try:
        left = await upload(app.service, sandbox.ref, path, folder, consent, lambda _: None, passing=True)
    except (ConsoleError, OSError) as error:
        app.notify(failure_text(error), title=title, severity="error", timeout=15)
    else:
        app.notify(f"{name} is in {clean(folder, cap=200)}{'; left out: ' + left[0] if left else ''}", title=title)
