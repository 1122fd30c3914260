"""The pages and files that are served: a fixed table, read once, without listings or templates."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web
from msgspec import Struct

_OWN = {
    "login.html": "text/html",
    "console.html": "text/html",
    "sessions.html": "text/html",
    "style.css": "text/css",
    "login.js": "text/javascript",
    **dict.fromkeys(
        ["console.js", "line.js", "bar.js", "clipboard.js", "selection.js", "touch.js", "transfer.js"],
        "text/javascript",
    ),
    "api.js": "text/javascript",
    "sessions.js": "text/javascript",
    "logo.svg": "image/svg+xml",
    "logo-fault.svg": "image/svg+xml",
    "vendor/xterm.css": "text/css",
    "vendor/xterm.mjs": "text/javascript",
    "vendor/addon-fit.mjs": "text/javascript",
    "vendor/addon-unicode11.mjs": "text/javascript",
    "vendor/addon-webgl.mjs": "text/javascript",
}
_FONT = "RobotoMono-VariableFont_wght.ttf"


class Page(Struct, frozen=True):
    """One file's bytes and type."""

    body: bytes
    content_type: str

    def response(self) -> web.Response:
        """The file as a response."""
        charset = "utf-8" if self.content_type.startswith("text/") else None
        return web.Response(body=self.body, content_type=self.content_type, charset=charset)


def read_pages() -> dict[str, Page]:
    """Every file that may be requested, by its name under /static/."""
    own = files("sandbox_console.web") / "static"
    pages = {name: Page(_at(own, name).read_bytes(), kind) for name, kind in _OWN.items()}
    font = files("textual_serve") / "static" / "fonts" / _FONT
    return pages | {"font.ttf": Page(font.read_bytes(), "font/ttf")}


def _at(folder: Traversable, name: str) -> Traversable:
    for part in name.split("/"):
        folder /= part
    return folder
