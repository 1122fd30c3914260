"""The app's port forwards: chooses a port, shows its address, and ends the forward with the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.app import App

from sandbox_console.errors import ConsoleError
from sandbox_console.model import ports
from sandbox_console.model.action import Forward
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console
from sandbox_console.service.sessions.forward import HeldForward, forward
from sandbox_console.tui.actions.action_flow import Flows
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.state.fleet_state import Forwarded, News
from sandbox_console.tui.text.formatting import error_words, shown_name
from sandbox_console.tui.text.port_text import Opening, openings, url

_USUAL = 8000
_HELP = "Makes a port of the sandbox reachable on this machine, until you end it or quit."


class ForwardFlow:
    """The forwards that the app holds, by sandbox."""

    def __init__(self, app: App[None], console: Console, flows: Flows, publish: Callable[[News], None]) -> None:
        self._app, self._console, self._flows, self._publish = app, console, flows, publish
        self._held: dict[SandboxRef, list[HeldForward]] = {}
        self._following: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """The number of forwards."""
        return sum(map(len, self._held.values()))

    async def ask(self, sandbox: Sandbox) -> None:
        """Request a port and forward it. If some are already forwarded, offer to end them first."""
        if (forwards := self._held.get(sandbox.ref)) and not await self._another(sandbox, forwards):
            return
        text = await self._app.push_screen_wait(
            AskScreen(
                f"Forward a port of {shown_name(sandbox)}", "80 for a free port of this machine, or 8080:80",
                str(_suggested(sandbox)), help_text=_HELP, command=lambda typed: _command(sandbox, typed),
            )
        )  # fmt: skip
        if not text:
            return
        try:
            await self._begin(sandbox, ports.parse(text))
        except ValueError as error:
            self._app.notify(str(error), title="forward", severity="error")

    async def close(self) -> None:
        """End all forwards. When this returns, the outcome of each is on record."""
        await asyncio.gather(
            *(forward.release() for forwards in self._held.values() for forward in forwards), return_exceptions=True
        )
        await asyncio.gather(*self._following, return_exceptions=True)

    async def _another(self, sandbox: Sandbox, forwards: list[HeldForward]) -> bool:
        """Return whether the user wants another port rather than to end one."""
        offers = {str(at): forward for at, forward in enumerate(forwards)}
        lines = [Choice(at, "End", "", detail=_words(forward, whole=True)) for at, forward in offers.items()]
        every = [Choice("all", "End all", "")] if len(forwards) > 1 else []
        title = f"Forwards of {shown_name(sandbox)}"
        menu = MenuScreen(title, [*lines, *every, Choice("new", "Another port", "")])
        chosen = await self._app.push_screen_wait(menu)
        ended = list(forwards) if chosen == "all" else [offers[chosen]] if chosen in offers else []
        for ended_forward in ended:
            await ended_forward.release()
            self._app.notify(f"Ended {_words(ended_forward, whole=True)}", title="forward")
        return chosen == "new"

    async def _begin(self, sandbox: Sandbox, port: PublishedPort) -> None:
        action = Forward(sandbox.ref, port.port, port.address, port.host_port)
        consent = await self._flows.consent(action, sandbox, confirmed=True)
        if consent is None:
            return
        try:
            held_forward = await forward(self._console, action, consent=consent)
        except ConsoleError as error:
            self._app.notify(error_words(error, apart=True), title=f"forward {shown_name(sandbox)}", severity="error")
            return
        self._held.setdefault(sandbox.ref, []).append(held_forward)
        self._tell(sandbox.ref)
        task = asyncio.ensure_future(self._follow(sandbox, held_forward))
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        where = url(_at(held_forward))
        self._app.copy_to_clipboard(where)
        self._app.notify(f"Copied {where}: port {port.port} of {shown_name(sandbox)}", title="forward")

    async def _follow(self, sandbox: Sandbox, forward: HeldForward) -> None:
        """Wait for a forward to end, and show a message if nobody here requested it."""
        reason = ""
        try:
            reason = await forward.ended()
        except ConsoleError as error:
            reason = error.message
        finally:
            self._held[sandbox.ref].remove(forward)
            self._tell(sandbox.ref)
        if reason:
            self._app.notify(
                f"{reason}; {forward.forwarding.host_address} is ended", title="forward", severity="warning"
            )

    def _tell(self, ref: SandboxRef) -> None:
        self._publish(Forwarded(ref, tuple(map(_words, self._held[ref]))))


def _at(forward: HeldForward) -> PublishedPort:
    action, number = forward.forwarding.action, forward.forwarding.host_address.rpartition(":")[2]
    return PublishedPort(action.address, int(number), action.port)


def _words(forward: HeldForward, *, whole: bool = False) -> str:
    """Return ``8080→80``; with ``whole`` also the address and the number of connections."""
    if not whole:
        return str(Opening(_at(forward)))
    count = forward.forwarding.connections
    text = f"{count} connection{'' if count == 1 else 's'}"
    return f"{forward.forwarding.host_address}→{forward.forwarding.action.port}, {text}"


def _suggested(sandbox: Sandbox) -> int:
    """Return the first port that the sandbox publishes, as a server is likely to listen there."""
    return next((opening.at.port for opening in openings(sandbox) if opening.protocol == "tcp"), _USUAL)


def _command(sandbox: Sandbox, typed: str) -> str:
    try:
        port = ports.parse(typed)
    except ValueError:
        port = PublishedPort(ports.LOOPBACK, 0, _suggested(sandbox))
    return command_line(Forward(sandbox.ref, port.port, port.address, port.host_port))
