"""Takes files that a page sends, keeps each in a private folder of its session, and tells the app."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web

from sandbox_console.web.app_sessions import AppSessions
from sandbox_console.web.logins import Login

MOST_BYTES = 1 << 30
MOST_FILES = 16
"""The most files of one session that wait to be put into a sandbox."""
CHUNK_S = 30.0
VIEW, NAME = "X-Session", "X-File-Name"
_LONGEST_NAME = 200


class Uploads:
    """The uploads of one server. ``folder`` is a folder of the state, which nobody else may enter."""

    def __init__(self, folder: Path, views: AppSessions, need_page: Callable[[web.Request], Login]) -> None:
        self._folder = folder / "uploads"
        self._views = views
        self._need_page = need_page

    async def handle(self, request: web.Request) -> web.Response:
        """Take one file: its name and the page's session are in headers, its bytes are the body."""
        login = self._need_page(request)
        view = self._views.of_page(login, request.headers.get(VIEW, ""))
        if view is None:
            raise web.HTTPNotFound(text="That session is gone.\n")
        if login.person is not None and login.person.rights.role == "viewer":  # the app would only refuse it later
            raise web.HTTPForbidden(text="You are a viewer, who changes nothing.\n")
        name = _safe_name(request.headers.get(NAME, ""))
        if request.content_length is None or request.content_length > MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(MOST_BYTES, text=f"At most {MOST_BYTES >> 30} GiB at a time.\n")
        own = self._folder / view.id
        if own.is_dir() and len(list(own.iterdir())) >= MOST_FILES:
            raise web.HTTPTooManyRequests(text=f"{MOST_FILES} files wait already: answer the app's question.\n")
        place = own / secrets.token_hex(8)
        place.mkdir(mode=0o700, parents=True)
        self._folder.chmod(0o700)
        view.when_over.append(lambda: shutil.rmtree(own, ignore_errors=True))
        try:
            await _store(request, place / name)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        await view.app.send_meta({"type": "uploaded", "path": str(place / name)})
        return web.json_response({})

    def clear(self) -> None:
        """Remove what servers that were killed have left. Only while no server runs."""
        shutil.rmtree(self._folder, ignore_errors=True)


async def _store(request: web.Request, path: Path) -> None:
    with path.open("xb") as file:
        while True:
            async with asyncio.timeout(CHUNK_S):
                chunk = await request.content.read(1 << 20)
            if not chunk:
                break
            await asyncio.to_thread(file.write, chunk)
        if file.tell() != request.content_length:
            raise web.HTTPBadRequest(text="The file did not arrive whole.\n")


def _safe_name(header: str) -> str:
    """The file's own name, which goes into the sandbox. Raises 400 for one that no file can have."""
    name = unquote(header, errors="replace").rpartition("/")[2].rpartition("\\")[2]
    if name in ("", ".", "..") or "\0" in name or len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise web.HTTPBadRequest(text="That is not a file name.\n")
    return name
