"""Shows messages on the desktop: by D-Bus where a session has it, else by OSC 9 where the terminal knows it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_console.model.alert import AlertMessage
from sandbox_console.model.text import clean
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels.channel import NotDelivered

Write = Callable[[str], object]
"""Writes to the terminal."""

_URGENCY = {"info": 0, "warning": 1, "critical": 2}
_OSC9 = ("iTerm.app", "WezTerm", "ghostty", "rio")
_BODY_MOST = 500


async def send(channel: AlertChannel, message: AlertMessage, write: Write | None) -> None:
    """Show a message. Raises NotDelivered if there is no desktop, and no terminal that can."""
    try:
        async with asyncio.timeout(channel.timeout_s):
            await _notify(message)
        return
    except TimeoutError:
        reason = f"the desktop did not answer within {channel.timeout_s:g} s"
    except (OSError, LookupError, RuntimeError, ValueError, ImportError) as error:
        reason = f"there is no desktop: {error}"
    if write is None or not terminal_notifies(os.environ):
        raise NotDelivered(f"{reason}, and no terminal that shows notifications")
    write(osc9(message))


def terminal_notifies(env: Mapping[str, str]) -> bool:
    """Whether the terminal is one that shows OSC 9 as a notification. tmux and screen pass it on to none."""
    if env.get("TMUX") or env.get("STY") or env.get("TEXTUAL_DRIVER"):
        return False
    return env.get("TERM_PROGRAM") in _OSC9 or env.get("TERM") in ("xterm-kitty", "xterm-ghostty", "foot")


def osc9(message: AlertMessage) -> str:
    """The sequence that shows a message. A semicolon at its beginning would make it another command."""
    return f"\x1b]9;sandbox-console {clean(message.headline)}\x07"


async def _notify(message: AlertMessage) -> None:
    """Call ``Notify`` of the desktop (freedesktop.org, Desktop Notifications 1.2)."""
    from jeepney import DBusAddress, MessageType, new_method_call
    from jeepney.io.asyncio import open_dbus_router

    desktop = DBusAddress(
        "/org/freedesktop/Notifications", bus_name="org.freedesktop.Notifications",
        interface="org.freedesktop.Notifications",
    )  # fmt: skip
    lines = "\n".join(f"{alert.name}: {alert.text}" for alert in message.alerts)[:_BODY_MOST]
    head = f"[{message.severity if message.status == 'firing' else message.status}] {message.rule}"
    hints = {"urgency": ("y", _URGENCY[message.severity]), "category": ("s", "device.error")}
    body: tuple[Any, ...] = ("sandbox-console", 0, "sandbox-console", head, _escaped(lines), [], hints, -1)
    async with open_dbus_router() as router:
        reply = await router.send_and_get_reply(new_method_call(desktop, "Notify", "susssasa{sv}i", body))
    if reply.header.message_type is MessageType.error:
        raise RuntimeError(str(reply.body[0] if reply.body else "it refused"))


def _escaped(text: str) -> str:
    """Text for a body, in which desktops may take markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
