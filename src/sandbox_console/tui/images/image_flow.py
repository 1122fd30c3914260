"""Actions on images and snapshots: their effects, the question, and the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.app import App
from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.host_action import (
    HostAction,
    PruneImages,
    PullImage,
    RemoveImage,
    RemoveSnapshot,
    RestoreSnapshot,
)
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.service import Ask, Console, Operation
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.actions.consent import consent_to
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.images.pull_progress import Pull
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.text.formatting import host_label, size

_NAMED = 6
"""The most images that a question names. Further ones are counted."""


class HostFlow:
    """The steps from a key on the images or snapshots screen to an action. Each runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console, work: Work, clock: Callable[[], float]) -> None:
        self._app = app
        self._console = console
        self._work = work
        self._clock = clock
        self.pulls: list[Pull] = []

    # --- images

    async def pull(self, places: Sequence[HostKey], image: str = "") -> None:
        """Request the image to pull, and the place if there is a choice, then follow the pull layer by layer."""
        host_key = await self._where(places, "Pull to")
        if host_key is None:
            return
        question = AskScreen(
            f"Pull an image to {host_label(host_key)}", "such as python:3.12-alpine or registry.example.com/team/app:1",
            image, command=lambda typed: command_line(PullImage(*host_key, typed)),
        )  # fmt: skip
        if not (name := await self._app.push_screen_wait(question)):
            return
        operation = await self._perform(PullImage(*host_key, name), name)
        if operation is not None:
            await self._follow(Pull(name, host_key, operation, self._clock()))

    async def _follow(self, pull: Pull) -> None:
        self.pulls.append(pull)
        try:
            async for line in pull.operation.events():
                pull.layers.note(line)
        finally:
            self.pulls.remove(pull)

    async def cancel(self) -> None:
        """Cancel the only pull, or the chosen one. The engine ends the transfer; the log records it as cancelled."""
        if not self.pulls:
            self._app.notify("No pull is running.", severity="warning")
            return
        found = {str(number): pull for number, pull in enumerate(self.pulls)}
        chosen = "0"
        if len(found) > 1:
            lines = [Choice(key, "Cancel", "", detail=clean(pull.image, cap=50)) for key, pull in found.items()]
            chosen = await self._app.push_screen_wait(MenuScreen("Cancel a pull", lines))
        pull = found.get(chosen)
        if pull is not None and not pull.operation.done:
            pull.operation.cancel()
            self._app.notify(f"The pull of {pull.image} is cancelled.")

    async def remove_image(self, image: Image, name: str) -> None:
        """Remove a name of an image. Removing its last name removes the image."""
        others = [one for one in image.names if one != name]
        used = image.used_by or 0
        action = RemoveImage(image.backend, image.host, name or image.id, force=used > 0 and not others)
        facts = [("Id", short_image(image.id)), ("Size", size(image.size_bytes)), ("Used by", _users(used))]
        if others:
            effect = f"Only this name is removed; the image stays as {', '.join(map(clean, others[:3]))}."
        elif used:
            effect = "Sandboxes that use it stay, but cannot be recreated. It is refused while one of them runs."
        else:
            effect = "It is removed, with every layer that no other image uses."
        warning = f"The console needs it: {image.needed}." if image.needed and not others else ""
        title = f"Remove {clean(name, cap=60) or short_image(image.id)}?"
        body = _body(facts, f"{host_label((image.backend, image.host))}", effect, warning)
        typed = short_image(image.id) if action.force else ""
        await self._ask_and_do(action, name or short_image(image.id), title, body, "Remove", typed)

    async def prune(self, places: Sequence[HostKey]) -> None:
        """Show what a prune would remove and how much it would free, then request confirmation."""
        host_key = await self._where(places, "Prune")
        if host_key is None:
            return
        self._app.notify("Calculating what it would free…", timeout=2)
        try:
            nameless, unused = await asyncio.gather(
                *(self._console.inside.prunable_images(*host_key, unused=every) for every in (False, True))
            )
        except ConsoleError as error:
            self._app.notify(error.message, title="prune", severity="error")
            return
        lines = [
            Choice("nameless", "Nameless", "n", _nothing(nameless), _frees(nameless)),
            Choice("unused", "All unused", "a", _nothing(unused), _frees(unused)),
        ]
        found = {"nameless": nameless, "unused": unused}
        chosen = await self._app.push_screen_wait(MenuScreen(f"Prune images of {host_label(host_key)}", lines))
        if chosen in found:
            await self._prune(PruneImages(*host_key, unused=chosen == "unused"), found[chosen])

    async def _prune(self, action: PruneImages, prunable: Prunable) -> None:
        named = [clean(image.names[0], cap=50) if image.names else short_image(image.id) for image in prunable.images]
        text = "\n".join(
            f"  {name}  {size(image.size_bytes)}" for name, image in zip(named[:_NAMED], prunable.images, strict=False)
        )
        more = f"\n  and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        spared = "".join(
            f"\n\nSpared: {', '.join(map(clean, image.names)) or short_image(image.id)}: {image.needed}."
            for image in prunable.spared
        )
        body = Content.assemble(
            (f"{text}{more}", ""), (f"\n\nFrees {size(prunable.freed_bytes)}.", "bold"), (spared, "")
        )
        title = f"Remove {len(named)} images of {host_label((action.backend, action.host))}?"
        await self._ask_and_do(action, "images", title, body, "Prune")

    # --- snapshots

    async def restore(self, snapshot: Snapshot) -> None:
        """Request the new sandbox's name, and create it."""
        host_key = snapshot.backend, snapshot.host
        question = AskScreen(
            f"A sandbox from {clean(snapshot.name, cap=40)}", "its name", help_text="Makes a running sandbox from it.",
            command=lambda typed: command_line(RestoreSnapshot(*host_key, snapshot.name, typed)),
        )  # fmt: skip
        if name := await self._app.push_screen_wait(question):
            await self._perform(RestoreSnapshot(*host_key, snapshot.name, name), name)

    async def remove_snapshot(self, snapshot: Snapshot) -> None:
        """Remove a snapshot. Its data exists nowhere else, so its name must be typed."""
        action = RemoveSnapshot(snapshot.backend, snapshot.host, snapshot.name)
        facts = [("Of", clean(snapshot.of, cap=60)), ("Size", size(snapshot.size_bytes))]
        body = _body(facts, host_label((snapshot.backend, snapshot.host)), "Its contents are lost.", "")
        name = clean(snapshot.name, cap=60)
        await self._ask_and_do(action, name, f"Remove the snapshot {name}?", body, "Remove", snapshot.name)

    # --- all

    async def _where(self, places: Sequence[HostKey], title: str) -> HostKey | None:
        if not places:
            self._app.notify("No backend that answers can.", severity="warning")
            return None
        if len(places) == 1:
            return places[0]
        lines = [Choice("/".join(host_key), host_label(host_key), "") for host_key in places]
        chosen = await self._app.push_screen_wait(MenuScreen(title, lines))
        return next((host_key for host_key in places if "/".join(host_key) == chosen), None)

    async def _ask_and_do(
        self, action: HostAction, name: str, title: str, body: Content, verb: str, typed: str = ""
    ) -> None:
        question = ConfirmScreen(
            title, body, verb, command=command_line(action), danger=True,
            accepts=(lambda text: text.strip() == typed) if typed else None, to_type=clean(typed, cap=60),
        )  # fmt: skip
        await self._perform(action, name, question)

    async def _perform(self, action: HostAction, name: str, question: ConfirmScreen | None = None) -> Operation | None:
        """Start an action once the user has agreed. If the policy forbids it, it is still tried, to be on record."""

        async def answer(ask: Ask | None) -> bool:
            shown = question
            if shown is None and ask is not None:
                title = f"{action.verb.capitalize()} {clean(name, cap=60)}?"
                shown = ConfirmScreen(title, Content(clean(ask.reason, cap=400)), "Yes", command=command_line(action))
            if shown is None:
                return True
            agrees: bool = await self._app.push_screen_wait(shown)
            return agrees

        consent = await consent_to(self._console, action, None, answer)
        return self._work.start(action, consent, name) if consent is not None else None


def short_image(id: str) -> str:
    """Return the beginning of an image's id."""
    return clean(id.removeprefix("sha256:")[:12])


def _users(count: int) -> str:
    return f"{count} sandbox{'' if count == 1 else 'es'}" if count else "none"


def _frees(prunable: Prunable) -> str:
    return f"{len(prunable.images)} images, frees {size(prunable.freed_bytes)}"


def _nothing(prunable: Prunable) -> str:
    return "" if prunable.images else "there are none"


def _body(facts: Sequence[tuple[str, str]], where: str, effect: str, warning: str) -> Content:
    parts: list[tuple[str, str]] = []
    for label, text in (*facts, ("Where", where)):
        parts += [(f"{label:9}", "$dim"), (f"{text}\n", "")]
    parts.append((f"\n{effect}", ""))
    parts.append((f"\n\n{warning}" if warning else "", "$text-warning"))
    return Content.assemble(*parts)
