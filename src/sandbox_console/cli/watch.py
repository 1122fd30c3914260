"""``watch``: runs the rules of ``[alerts]`` without a screen, until it is ended."""

from __future__ import annotations

import asyncio

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment
from sandbox_console.errors import ConfigError
from sandbox_console.model.alert import Alert, AlertState
from sandbox_console.service.alerts.channels.desktop import Write
from sandbox_console.service.alerts.watch import watch as watch_rules


async def watch(context: Context) -> int:
    """Print each alert when it begins to fire and when it is over. Raises ConfigError if there are no rules."""
    async with context.open() as console:
        options = console.config.alerts
        console.shipper.start()
        if not options.rules and context.args.status_port is not None:
            context.say("note: there are no rules, so only the status is served; Ctrl+C ends it")
            await asyncio.Event().wait()
        if not options.rules:
            raise ConfigError(
                "there are no rules to watch", hint='add [alerts.rules.NAME] with on = "state"; see docs/alerts.md'
            )
        if not options.channels:
            context.say("note: there are no channels, so alerts are only printed and shown in the app")
        context.say(f"rules: {len(options.rules)}, channels: {len(options.channels)}; Ctrl+C ends it")
        await watch_rules(
            console,
            notice=lambda alert: tell(context, alert),
            problem=lambda text: context.say(f"warning: {text}" if text else "the rules run"),
            write=terminal(context),
        )
    return 0


def terminal(context: Context) -> Write | None:
    """A function that writes to the terminal, if this command has one."""
    err = context.streams.err
    return (lambda text: err.write(text.encode())) if err.tty else None


def tell(context: Context, alert: Alert) -> None:
    """Print one alert."""
    if context.json:
        context.record(alert.as_dict())
        return
    at = alert.resolved_at if alert.state is AlertState.RESOLVED else alert.fired_at
    silenced = "  (silenced)" if alert.silenced else ""
    head = f"{moment(at)}  {alert.state.upper():<8}  {alert.severity:<8}"
    context.text(f"{head}  {alert.rule}  {alert.name}  {alert.text}{silenced}")
