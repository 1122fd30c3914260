"""Every backend's images, what uses them, and running pulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import PruneImages, PullImage, RemoveImage
from sandbox_console.model.image import Image
from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.dialogs.action_menu import Choice
from sandbox_console.tui.images.image_flow import short_image
from sandbox_console.tui.images.resource_screen import ResourceScreen
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import DASH, host_label, many, platform_words, size, span
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.table.table_layout import Column
from sandbox_console.tui.widgets.table.table_rows import Row

TICK_S = 0.25
_USERS_NAMED = 3


class ImagesScreen(ResourceScreen[Image]):
    """Has a row for each name. Pulls continue when the screen is left."""

    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["images"]
    TITLE_WORDS = "Images"
    EMPTY = "No images yet."
    NEXT = ("images-pull", "pulls one")
    CAPABILITY = Capability.IMAGES
    COLUMNS = (
        Column("name", "NAME", 30, 60, priority=0),
        Column("size", "SIZE", 5, 8, "right", priority=1, largest=True),
        Column("age", "AGE", 6, 8, "right", priority=3),
        Column("platform", "PLATFORM", 11, 24, priority=3),
        Column("used", "USED BY", 12, 40, priority=1, flex=True, largest=True),
        Column("id", "ID", 14, 14, priority=4),
        Column("backend", "BACKEND", 8, 24, priority=2),
    )

    def on_mount(self) -> None:
        self.set_interval(TICK_S, self._show_pulls)

    async def fetch(self, host_key: HostKey) -> Sequence[Image]:
        return sorted(await self._service.inside.images(*host_key), key=lambda image: (not image.names, image.names))

    def rows(self, image: Image, now: float) -> list[Row]:
        host_key = image.backend, image.host
        age = None if image.created_at is None else now - image.created_at
        used, style = self._used(image)
        rest = (
            size(image.size_bytes), DASH if age is None else span(age), platform_words(image) or DASH, used,
            short_image(image.id), host_label(host_key),
        )  # fmt: skip
        order = (image.size_bytes, age, image.platforms, image.used_by, image.id, host_key)
        return [
            Row(
                (host_key, image.id, name),
                (clean(name, cap=200) or "(no name)", *rest),
                ("" if name else "dim", "", "", "warn" if image.emulated else "dim", style, "dim", "dim"),
                (name, *order),
            )
            for name in image.names or ("",)
        ]

    def _used(self, image: Image) -> tuple[str, str]:
        """Return how many sandboxes use an image, and the names of those in the list."""
        if not image.used_by:
            needed = clean(image.needed, cap=60)
            return (needed, "accent") if needed else ("–" if image.used_by is None else "not used", "dim")
        known = [
            clean(box.name, cap=30)
            for box in self.console_app.fleet.sandboxes.values()
            if (box.ref.backend, box.ref.host) == (image.backend, image.host) and box.image in (*image.names, image.id)
        ][:_USERS_NAMED]
        more = image.used_by - len(known)
        names = ", ".join(known) + (f" +{more}" if known and more > 0 else "")
        return (f"{image.used_by}  {names}" if names else str(image.used_by)), ""

    def summary(self, images: Sequence[Image]) -> str:
        free = sum(not image.used_by for image in images)
        return f"{many(len(images), 'image')}, {free} not used"

    @property
    def selected(self) -> tuple[Image, str] | None:
        """The image under the cursor, and the name in that row."""
        if (key := self.key) is None:
            return None
        host_key, id_, name = key
        return next(((image, name) for image in self.resources(host_key) if image.id == id_), None)

    def commands(self) -> list[Choice]:
        choices = [Choice(line, "Pull", "", detail=line) for host_key in self.able[:1] if (line := _pull(host_key))]
        if self.selected is not None:
            image, name = self.selected
            line = command_line(RemoveImage(image.backend, image.host, name or image.id))
            choices.append(Choice(line, "Remove", "", detail=line))
        for host_key in self.able[:1]:
            for unused, label in ((False, "Prune"), (True, "Prune all")):
                line = command_line(PruneImages(*host_key, unused))
                choices += [Choice(line, label, "", detail=line)]
                dry = f"{line} --dry-run"
                choices += [Choice(dry, "Dry run", "", detail=dry)]
        return [*choices, Choice("sandbox-console images ls", "List", "", detail="sandbox-console images ls")]

    def _show_pulls(self) -> None:
        shown = [pull.words(self._clock()) for pull in self._flow.pulls]
        if shown:
            cancels = hint(self, "images-cancel-pull", "cancels")
            more = "; ".join(filter(None, (cancels, "it continues when you leave this screen")))
            shown.append(Content.assemble((f"  {more}", "$dim")))
        put_note(self, "#holdings-progress", Content("\n").join(shown))

    # --- keys

    def action_pull(self) -> None:
        """Pull an image from its registry."""
        self.app.run_worker(self._flow.pull(self.able))

    def action_cancel_pull(self) -> None:
        """Cancel a pull."""
        self.app.run_worker(self._flow.cancel())

    def action_remove(self) -> None:
        """Remove the name under the cursor."""
        if (found := self.selected) is None:
            self.notify("No image is selected.", severity="warning")
        else:
            self.app.run_worker(self._flow.remove_image(*found))

    def action_prune(self) -> None:
        """Remove unused images, after showing which they are."""
        self.app.run_worker(self._flow.prune(self.able))

    def action_copy_name(self) -> None:
        """Copy the image's name."""
        if (found := self.selected) is not None:
            image, name = found
            self.app.copy_to_clipboard(name or image.id)
            self.notify(f"Copied {clean(name or image.id, cap=100)}")

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_copy_name()


def _pull(host_key: HostKey) -> str:
    return command_line(PullImage(*host_key, ""))
