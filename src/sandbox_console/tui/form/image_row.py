"""The form's image: completed from what the backend has, with what is known about it, and pulled in place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from sandbox_console.model.access import access
from sandbox_console.model.image import Image
from sandbox_console.model.spec_fields import SpecField
from sandbox_console.model.text import clean
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.form.entry_list import Entry, EntryList
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.text.formatting import platform_words, size, span

_SHOWN = 6
_FOLDERS_MOST = 2000
_DIR = "dir:"
_FOLDERS = {"host": "the programs of this machine, read-only", _DIR: "a folder with a root file system"}
"""What stands for an image where there are none, and what it means."""


class ImageRow(FormRow):
    """The list below the line has the images that match it, while the row has the focus.

    ``allowed`` are the policy's patterns; ``clock`` returns Unix seconds.
    """

    DEFAULT_CSS = """
    ImageRow .list-line { height: auto; }
    ImageRow .list-box { width: 1fr; height: auto; }
    ImageRow #image-list { display: none; }
    ImageRow.-open #image-list { display: block; }
    ImageRow.-open #image-list.-empty { display: none; }
    ImageRow #image-note { height: auto; padding: 0 1; display: none; }
    ImageRow #image-note.-on { display: block; }
    """

    def __init__(
        self, field: SpecField, value: str, fixed: str, typed: str | None, allowed: Sequence[str],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(field, value, field.hint, fixed, typed)
        self._allowed, self._clock = allowed, clock
        self._images: Sequence[Image] | None = None
        self._names: list[str] = []
        self._pulling: Content | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(classes="list-line"):
            yield Static(Content(self.field.label), classes="label")
            with Vertical(classes="list-box"):
                yield self._entry()
                yield EntryList(id="image-list", removable=False)
                yield Static(id="image-note", markup=False)
        yield Static(classes="problem", markup=False)

    def offer(self, images: Sequence[Image] | None) -> None:
        """Complete from these images; None if the backend has none, but takes folders of this machine."""
        self._images = images
        self._complete_soon()

    def note_pull(self, progress: Content | None) -> None:
        """Show how far the pull of the image is; None after its end."""
        self._pulling = progress
        self._show_note()

    @property
    def known(self) -> Image | None:
        """The image of the line, if the backend has it."""
        return next((image for image in self._images or () if self.text in (*image.names, image.digest)), None)

    @property
    def missing(self) -> bool:
        """Whether the backend has images, but not that of the line."""
        return self._images is not None and bool(self.text) and self.known is None and "@" not in self.text

    def pin(self) -> bool:
        """Replace the tag by the digest. Returns False if the digest is not known."""
        image = self.known
        if image is None or not image.digest:
            return False
        head, slash, last = self.text.rpartition("/")
        self.put(f"{head}{slash}{last.partition(':')[0]}@{image.digest.rpartition('@')[2]}")
        return True

    def on_descendant_focus(self) -> None:
        """Show the list while the row has the focus."""
        self.add_class("-open")

    def on_descendant_blur(self) -> None:
        """Hide the list unless the focus went from the line to it."""
        self.call_later(lambda: self.set_class(self.has_focus_within, "-open"))

    @on(Input.Changed)
    def _typed(self) -> None:
        self._complete_soon()

    def _complete_soon(self) -> None:
        self.run_worker(self._complete(), group="complete", exclusive=True)

    async def _complete(self) -> None:
        text = self.text
        if self._images is None:
            folders = await asyncio.to_thread(_folders, text.removeprefix(_DIR)) if text.startswith(_DIR) else None
            found = list(_FOLDERS) if folders is None else [f"{_DIR}{one}" for one in folders]
            fitting = (one for one in found if one != text and (folders is not None or one.startswith(text)))
            shown = [Entry(one, _FOLDERS.get(one, "")) for one in fitting]
        else:
            known = [(name, one) for one in self._images for name in one.names]
            shown = [
                Entry(name, self._facts(one)) for name, one in known if text.lower() in name.lower() and name != text
            ]
            shown.sort()
        self._names = [one.text for one in shown[:_SHOWN]]
        for listed in self.query(EntryList):
            listed.show(shown[:_SHOWN])
        self._show_note()

    def _facts(self, image: Image) -> str:
        age = f"{span(self._clock() - image.created_at)} old" if image.created_at else ""
        digest = image.digest.rpartition("@")[2][:19]
        return "  ".join(filter(None, [size(image.size_bytes), age, platform_words(image), digest]))

    def _show_note(self) -> None:
        text, parts = self.text, list[Content | tuple[str, str]]()
        if text and not any(fnmatchcase(text, pattern) for pattern in self._allowed):
            parts.append((f"✕ the policy allows only {clean(', '.join(self._allowed), cap=200)}", "$text-error"))
        if self._pulling:
            parts.append(self._pulling)
        elif image := self.known:
            pins = "  (F5 pins the digest)" if image.digest and "@" not in text else ""
            parts.append((f"● here: {self._facts(image)}{pins}", "$dim"))
            if image.emulated:
                parts.append(("! not for this host's processor: it runs only by emulation, if at all", "$text-warning"))
        elif self.missing:
            parts.append(("not here; it is pulled when the sandbox is made, or now by Ctrl+L", "$dim"))
        lines = [one if isinstance(one, Content) else Content.styled(*one) for one in parts]
        put_note(self, "#image-note", Content("\n").join(lines))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_index < len(self._names):
            self.put(self._names[event.option_index])
            line = self.query_one(Input)
            line.focus()
            line.cursor_position = len(line.value)


def _folders(typed: str) -> list[str]:
    """Return the folders that begin with a typed path, in order; none to people who may not use any."""
    if access().role != "admin":
        return []
    parent, name = os.path.split(os.path.expanduser(typed) or "/")  # noqa: PTH111 - a path without a home stays
    try:
        with os.scandir(parent or "/") as entries:
            found = [one.name for _, one in zip(range(_FOLDERS_MOST), entries, strict=False) if one.is_dir()]
    except OSError:
        return []
    shown = [one for one in found if one.startswith(name) and (name.startswith(".") or not one.startswith("."))]
    return [os.path.join(parent, one) for one in sorted(shown)]  # noqa: PTH118 - text, as it was typed
