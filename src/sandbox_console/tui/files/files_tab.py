"""The files of the selected sandbox: browse, view, download and upload."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.widgets import Input, Static
from textual.worker import Worker

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, Download, Upload
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Consent, Console
from sandbox_console.tui.base.browser_files import downloads, private_folder, refused_by_relay, send_path
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.dialogs.long_text_screen import text_screen
from sandbox_console.tui.files.file_text import COLUMNS, file_row, file_words, local_name
from sandbox_console.tui.files.file_transfer import download, failure_text, read_file, upload
from sandbox_console.tui.keys.keymap import hint, hints
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.text.formatting import size
from sandbox_console.tui.widgets.table.table import FleetTable

VIEWED = 256 * 1024
"""How many bytes of a file are shown."""
ENTRIES = 20_000

Asking = Callable[[Action, Sandbox], Awaitable[Consent | None]]


class FilesPane(Vertical):
    """The files of a sandbox.

    ``Enter`` opens, ``Backspace`` goes up, ``D`` downloads, ``U`` uploads, ``P`` goes to a path.

    ``ask`` returns the consent that the policy requires. Every view and transfer crosses the sandbox's boundary, so it
    goes through the gate and is recorded.
    """

    DEFAULT_CSS = """
    FilesPane { height: 1fr; }
    FilesPane > #files-path { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    FilesPane > #files-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    FilesPane > #files-note.-on { display: block; }
    FilesPane > Input { display: none; height: 3; }
    FilesPane > Input, FilesPane > Input:focus { border: round $primary; background: $background; }
    FilesPane > Input.-asking { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["files"]

    def __init__(self, console: Console, ask: Asking, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._ask_consent = ask
        self._sandbox: Sandbox | None = None
        self._shown: SandboxRef | None = None
        self._paths: dict[SandboxRef, str] = {}
        self._entries: dict[str, FileInfo] = {}
        self._masked: Callable[[str], str] = str
        self._asked_for = ""
        self._asked_about = ""
        self._opening = ""
        self._transfer: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="files-path")
        yield Static(id="files-note")
        yield FleetTable(COLUMNS, id="files-table")
        yield Input(id="files-input")

    @property
    def path(self) -> str:
        """The open folder."""
        return self._paths.get(self._shown, "/") if self._shown else "/"

    def show(self, look: TabState) -> None:
        """Browse a sandbox while the pane is on screen. Each sandbox keeps its open folder."""
        sandbox, active, _ = look
        self._sandbox = sandbox
        ref = sandbox.ref if sandbox is not None and active else None
        if ref is None or ref == self._shown:
            return
        self._shown = ref
        self._fill(())
        self._go(self.path)

    def _go(self, path: str) -> None:
        if self._sandbox is not None:
            self._note("Asking…")
            self._opening = path
            self.run_worker(self._list(self._sandbox, path), exclusive=True, group="files")

    async def _list(self, sandbox: Sandbox, path: str) -> None:
        try:
            infos = await self._service.inside.list_dir(sandbox.ref, path)
            self._masked = await self._service.inside.mask(sandbox.ref)
        except ConsoleError as error:
            self._not_opened(path, error)
            if not self._entries:
                self._head(path)
            return
        self._opened(path)
        before, self._paths[sandbox.ref] = self._paths.get(sandbox.ref, path), path
        left_out = len(infos) - ENTRIES
        self._note("Empty." if not infos else f"{left_out:,} more are not shown." if left_out > 0 else "")
        self._head(path)
        self._fill(infos[:ENTRIES])
        if before != path:
            self._arrive(before, path)

    def _opened(self, path: str) -> None:
        if self._opening == path:
            self._opening = ""

    def _not_opened(self, path: str, error: ConsoleError) -> None:
        self._opened(path)
        self._note(f"✕ {failure_text(error)}")

    def _held(self) -> bool:
        """Whether the rows are those of a folder that the user has left. Then the user is told."""
        if not self._opening or self._opening == self.path:
            return False
        self.notify(f"{clean(self._opening, cap=200)} is not open yet.", severity="warning")
        return True

    def _arrive(self, before: str, path: str) -> None:
        """Place the cursor: on the folder just left when going up, otherwise at the top."""
        for table in self.query(FleetTable):
            left = posixpath.basename(before) if posixpath.dirname(before) == path else None
            if not table.move_to(left) and table.rows:
                table.move_to(table.rows[0].key)

    def _head(self, path: str) -> None:
        keys = hints(self, ("files-download", "download"), ("files-upload", "upload"))
        put(
            self, "#files-path", Content.assemble((clean(self._masked(path), cap=2000), "bold"), (f"   {keys}", "$dim"))
        )

    def _fill(self, infos: Sequence[FileInfo]) -> None:
        order = sorted(infos, key=lambda info: (info.kind is not FileKind.DIRECTORY, info.name))
        self._entries = {info.name: info for info in order}
        for table in self.query(FleetTable):
            table.set_rows([file_row(info, self._masked) for info in order])

    def _note(self, text: str) -> None:
        put_note(self, "#files-note", plain(text))

    # --- keys

    def on_fleet_table_moved(self, event: FleetTable.Moved) -> None:
        event.stop()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        entry = self._entries.get(str(event.key))
        if entry is None or self._sandbox is None or (entry.kind is FileKind.FILE and self._held()):
            return
        path = posixpath.join(self.path, entry.name)
        if entry.kind is FileKind.FILE:
            self.run_worker(self._view(self._sandbox, path), exclusive=True, group="files-view")
        elif entry.kind is FileKind.OTHER:
            self.notify("It is a device, a socket or a pipe: there is nothing to read.", severity="warning")
        else:
            self._opening = path
            self.run_worker(self._follow(self._sandbox, path), exclusive=True, group="files")

    async def _follow(self, sandbox: Sandbox, path: str) -> None:
        """Open a folder, or the target of a link."""
        try:
            kind = (await self._service.inside.stat(sandbox.ref, path)).kind
        except ConsoleError as error:
            self._not_opened(path, error)
            return
        if kind is FileKind.FILE:
            self._opened(path)
            await self._view(sandbox, path)
        else:
            await self._list(sandbox, path)

    async def _view(self, sandbox: Sandbox, path: str) -> None:
        consent = await self._ask_consent(Download(sandbox.ref, path), sandbox)
        if consent is None:
            return
        try:
            data, more = await read_file(self._service, sandbox.ref, path, consent, VIEWED)
        except (ConsoleError, OSError) as error:
            self._note(f"✕ {failure_text(error)}")
            return
        words = file_words(data, more=more, downloads=hint(self, "files-download", "downloads all of it"))
        self.app.push_screen(text_screen(clean(path, cap=100), words))

    def action_up(self) -> None:
        """Go to the parent folder."""
        self._go(posixpath.dirname(self.path.rstrip("/")) or "/")

    def action_again(self) -> None:
        """List the folder again."""
        self._go(self.path)

    # --- typing a path

    def action_ask(self, command: str) -> None:
        """Request a path: on this machine for a transfer, or in the sandbox to go to."""
        if command != "go" and self._held():
            return
        entry = self._entries.get(str(self.query_one(FleetTable).cursor_key))
        if command == "download" and entry is None:
            self.notify("Nothing is selected.", severity="warning")
            return
        if command != "go" and downloads(self.app):
            if not refused_by_relay(self.app):
                self._ask_browser(command, entry)
            return
        line = self.query_one(Input)
        titles = {"download": "Download to (here)", "upload": "Upload from (here)", "go": "Go to (in the sandbox)"}
        self._asked_for = command
        self._asked_about = posixpath.join(self.path, entry.name) if command == "download" and entry else self.path
        line.border_title = plain(titles[command])
        line.border_subtitle = "Enter does it, Esc leaves"
        line.value = str(Path.cwd() / local_name(entry.name)) if command == "download" and entry else ""
        line.value = self.path if command == "go" else line.value
        self.screen.set_focus(line.add_class("-asking"))

    def _ask_browser(self, command: str, entry: FileInfo | None) -> None:
        """Download to the browser, or let its page ask for files."""
        if command == "upload":
            self.app._driver.pick_files()  # type: ignore[union-attr]  # noqa: SLF001 - has no public name
        elif entry is not None and self._sandbox is not None:
            move = self._send(self._sandbox, posixpath.join(self.path, entry.name))
            self._transfer = self.run_worker(move, group="transfer")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        self._close()
        if not text or self._sandbox is None:
            return
        if self._asked_for == "go":
            self._go(posixpath.normpath(posixpath.join(self.path, text)))
            return
        local = Path(text).expanduser().absolute()
        move = self._upload if self._asked_for == "upload" else self._download
        self._transfer = self.run_worker(move(self._sandbox, self._asked_about, local), group="transfer")

    def on_key(self, event: Key) -> None:
        if event.key != "escape":
            return
        if self.query_one(Input).has_class("-asking"):
            event.stop()
            self._close()
        elif self._transfer is not None and not self._transfer.is_finished:
            event.stop()
            self._transfer.cancel()
            self._note("The transfer was cancelled.")

    def _close(self) -> None:
        self.query_one(Input).remove_class("-asking")
        self.query_one(FleetTable).focus()

    # --- transfers

    async def _download(self, sandbox: Sandbox, path: str, target: Path) -> None:
        consent = await self._ask_consent(Download(sandbox.ref, path), sandbox)
        if consent is None:
            return
        try:
            left = await download(self._service, sandbox.ref, path, target, consent, self._progress("downloaded"))
        except (ConsoleError, OSError) as error:
            self._note(f"✕ {failure_text(error)}")
        else:
            self._note(f"{path} is at {target}{_left_out(left)}")

    async def _send(self, sandbox: Sandbox, path: str) -> None:
        """Download to the browser."""
        consent = await self._ask_consent(Download(sandbox.ref, path), sandbox)
        if consent is None:
            return
        with private_folder() as folder:
            target = folder / local_name(posixpath.basename(path))
            try:
                progress = self._progress("read")
                left = await download(self._service, sandbox.ref, path, target, consent, progress, passing=True)
                name = await send_path(self.app, target)
            except (ConsoleError, OSError) as error:
                self._note(f"✕ {failure_text(error)}")
            else:
                self._note(f"{name} is downloaded{_left_out(left)}")

    async def _upload(self, sandbox: Sandbox, folder: str, source: Path) -> None:
        consent = await self._ask_consent(Upload(sandbox.ref, folder), sandbox)
        if consent is None:
            return
        try:
            left = await upload(self._service, sandbox.ref, source, folder, consent, self._progress("uploaded"))
        except (ConsoleError, OSError) as error:
            self._note(f"✕ {failure_text(error)}")
        else:
            await self._list(sandbox, folder)
            self._note(f"{source} is in {folder}{_left_out(left)}")

    def _progress(self, done: str) -> Callable[[int], None]:
        return lambda count: self._note(f"↻ {size(count)} {done}; Esc ends it")


def _left_out(left: Sequence[str]) -> str:
    more = f", and {len(left) - 1:,} more" if len(left) > 1 else ""
    return f"; left out: {left[0]}{more}" if left else ""
