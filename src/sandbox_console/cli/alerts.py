"""``alerts``: lists alerts and messages that have not arrived, silences alerts, and tries the channels."""

from __future__ import annotations

from contextlib import closing

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment
from sandbox_console.cli.watch import terminal
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.alert import Alert, Delivery, Silence
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.service.alerts.alerts import AlertBook

_MONTH_S = 31 * 86400


async def alerts(context: Context) -> int:
    """Run one of the verbs."""
    async with context.open() as console:
        with closing(AlertBook(console, context.now)) as book:
            match context.args.what:
                case "ls":
                    return await _ls(context, book)
                case "outbox":
                    return await _outbox(context, book)
                case "silence":
                    return await _silence(context, book)
                case _:
                    return await _test(context, book, list(console.config.alerts.channels))


async def _ls(context: Context, book: AlertBook) -> int:
    alerts = await book.alerts(resolved=context.args.all)
    if context.json:
        for alert in alerts:
            context.record(alert.as_dict())
        return 0
    head = ("STATE", "SEVERITY", "RULE", "SANDBOX", "SINCE", "TEXT")
    context.table(head, (_row(alert, context.now()) for alert in alerts))
    if not alerts:
        context.say("no alert fires")
    if not await book.watcher():
        context.say("note: no process is running the rules; sandbox-console watch does")
    if waiting := await book.waiting():
        context.say(f"note: {len(waiting)} messages have not arrived yet; see sandbox-console alerts outbox")
    return 0


def _row(alert: Alert, now: float) -> tuple[str, ...]:
    state = f"{alert.state}, silenced" if alert.silenced else str(alert.state)
    return state, alert.severity, alert.rule, alert.name, f"{duration(now - alert.since)} ago", alert.text


async def _outbox(context: Context, book: AlertBook) -> int:
    deliveries = await book.waiting()
    if context.json:
        for delivery in deliveries:
            context.record(_delivery(delivery))
        return 0
    head = ("CHANNEL", "RULE", "STATUS", "MADE", "TRIES", "NEXT", "WHY")
    context.table(head, (_delivery_row(delivery, context.now()) for delivery in deliveries))
    if not deliveries:
        context.say("every message has arrived")
    return 0


def _delivery(delivery: Delivery) -> dict[str, object]:
    return {
        "channel": delivery.channel, "message": delivery.message.id, "rule": delivery.message.rule,
        "status": delivery.message.status, "at": delivery.message.at, "attempts": delivery.attempts,
        "next_at": delivery.next_at, "error": delivery.error,
    }  # fmt: skip


def _delivery_row(delivery: Delivery, now: float) -> tuple[str, ...]:
    wait = f"in {duration(delivery.next_at - now)}" if delivery.next_at > now else "now"
    made = f"{duration(now - delivery.message.at)} ago"
    return (
        delivery.channel,
        delivery.message.rule,
        delivery.message.status,
        made,
        str(delivery.attempts),
        wait,
        delivery.error or "-",
    )


async def _silence(context: Context, book: AlertBook) -> int:
    args = context.args
    if args.undo is not None:
        if args.rule is not None or not args.undo.isdecimal():
            raise UsageError("--undo takes the number of a silence, and no RULE", hint="sandbox-console alerts silence")
        ended = await book.end_silence(int(args.undo))
        context.say(f"messages of {ended.rule} about {ended.sandbox} are sent again")
        return 0
    if args.rule is None:
        return await _silences(context, book)
    try:
        seconds = parse_duration_s(args.period)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if not 0 < seconds <= _MONTH_S:
        raise UsageError("--for: a silence lasts up to 31 days", hint="--for 2h")
    silence = await book.silence(args.rule, args.sandbox, seconds, args.reason)
    if context.json:
        context.record(silence.as_dict())
    else:
        context.say(
            f"silence {silence.id}: no messages of {silence.rule} about {silence.sandbox} until {moment(silence.until)}"
        )
    return 0


async def _silences(context: Context, book: AlertBook) -> int:
    silences = await book.silences()
    head = ("ID", "RULE", "SANDBOX", "UNTIL", "BY", "REASON")
    context.listing(head, silences, Silence.as_dict, _silence_row)
    return 0


def _silence_row(silence: Silence) -> tuple[str, ...]:
    return str(silence.id), silence.rule, silence.sandbox, moment(silence.until), silence.by, silence.reason or "-"


async def _test(context: Context, book: AlertBook, known: list[str]) -> int:
    names = list(dict.fromkeys(context.args.channels or known))
    if not names:
        raise UsageError("there is no channel to test", hint="add a table [alerts.channels.NAME]; see docs/alerts.md")
    for name in names:
        try:
            await book.test(name, terminal(context))
        except ConsoleError as error:
            context.fail(error, name)
            continue
        if context.json:
            context.record({"channel": name, "ok": True})
        else:
            context.text(f"{name}: the message has arrived")
    return context.code
