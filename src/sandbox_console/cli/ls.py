"""``ls`` and ``show``: list sandboxes, and show one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

import tomli_w

from sandbox_console.cli import json_output, lookup
from sandbox_console.cli.context import ID_SHOWN, Context
from sandbox_console.cli.formatting import Columns, duration, moment
from sandbox_console.cli.ls_format import formatter
from sandbox_console.cli.spec_options import pairs
from sandbox_console.errors import Conflict, UsageError
from sandbox_console.model.drift import DriftState, FieldDrift
from sandbox_console.model.event import AuditChanged, Changed, Event, Gap, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef
from sandbox_console.model.secret import shown_env
from sandbox_console.service import Console

_HEAD = ("NAME", "STATE", "BACKEND", "IMAGE", "AGE", "EXIT", "ID", "NOTE")


async def ls(context: Context) -> int:
    """List sandboxes. A backend that does not answer is named on stderr; if ``--backend`` named it, exit 5."""
    labels = pairs(context.args.label, "label")
    print_all = _printer(context)
    async with context.open() as console:
        if context.args.watch:
            await _watch(context, console, labels)
            return 0
        await _list(context, console, labels, print_all)
    return context.code


async def _list(
    context: Context, console: Console, labels: dict[str, str], print_all: Callable[[Sequence[Sandbox]], None]
) -> None:
    """Print what has answered and name the backends that have not; print the rest as it arrives."""
    healths: list[BackendHealth] = []
    async with aclosing(console.list_as_answered(context.backend[0], lookup.PATIENCE_S)) as answers:
        async for (sandboxes, backend_healths), waiting in answers:
            healths += backend_healths
            shown = [sandbox for sandbox in sandboxes if wanted(sandbox, labels, everything=context.args.all)]
            if shown or not waiting:  # the header's columns take their widths from the first rows
                print_all(sorted(shown, key=lambda sandbox: (sandbox.name, sandbox.ref)))
            lookup.say_waiting(context, waiting)
    lookup.warn_of_the_silent(context, console, healths)


def wanted(sandbox: Sandbox, labels: dict[str, str], *, everything: bool) -> bool:
    """Whether to list it: ours in every state, others only while they live, or with ``everything`` all."""
    if any(sandbox.labels.get(key) != value for key, value in labels.items()):
        return False
    return everything or sandbox.managed or sandbox.status.live


def _printer(context: Context) -> Callable[[Sequence[Sandbox]], None]:
    """The function that prints the list. Raises UsageError for options that contradict each other."""
    args = context.args
    if args.watch and (args.quiet or args.format or args.no_header):
        raise UsageError("--watch prints changes, not a list", hint="leave out -q, --format and --no-header")
    if (args.quiet and args.format) or (context.json and (args.quiet or args.format)):
        raise UsageError("-q, --format and --json cannot be used together", hint="leave all but one out")
    if args.quiet or args.format:
        one_line = formatter("{{.Ref}}" if args.quiet else args.format)
        return lambda sandboxes: _lines(context, [one_line(sandbox, context.now()) for sandbox in sandboxes])
    if context.json:
        return lambda sandboxes: _lines(
            context, [json_output.line(json_output.sandbox(sandbox)) for sandbox in sandboxes]
        )
    columns = Columns(_HEAD, header=not args.no_header)
    return lambda sandboxes: _lines(context, columns.lines(row(sandbox, context.now()) for sandbox in sandboxes))


def _lines(context: Context, lines: Iterable[str]) -> None:
    for one in lines:
        context.streams.out.line(one)


def row(sandbox: Sandbox, now: float) -> tuple[str, ...]:
    """A sandbox as a line of the table."""
    ref = sandbox.ref
    age = None if sandbox.created_at is None else now - sandbox.created_at
    return (
        sandbox.name,
        str(sandbox.status),
        ref.backend if ref.host == "local" else f"{ref.backend}/{ref.host}",
        sandbox.image or "-",
        duration(age),
        exit_text(sandbox),
        ref.id[:ID_SHOWN],
        " ".join(filter(None, ["" if sandbox.managed else f"({sandbox.maker or 'not ours'})", note(sandbox)])),
    )


def note(sandbox: Sandbox) -> str:
    """What a person may need to know: whether it is in quarantine, and the reason for its state."""
    return "; ".join(filter(None, [sandbox.quarantine, sandbox.detail]))


def exit_text(sandbox: Sandbox) -> str:
    """How it ended, such as ``0`` or ``137 oom``; ``-`` while it lives."""
    found = sandbox.exit
    if found is None or found.code is None:
        return "-"
    return f"{found.code} oom" if found.oom else str(found.code)


async def _watch(context: Context, console: Console, labels: dict[str, str]) -> None:
    watching = console.watch()
    known: dict[SandboxRef, Sandbox] = {}
    try:
        async for event in watching:
            _tell(context, event, labels, known)
    finally:
        watching.close()


def _tell(context: Context, event: Event, labels: dict[str, str], known: dict[SandboxRef, Sandbox]) -> None:
    match event:
        case Listed(backend, host, sandboxes):
            gone = [ref for ref in known if (ref.backend, ref.host) == (backend, host)]
            for ref in set(gone) - {one.ref for one in sandboxes}:
                _removed(context, ref, known)
            for one in sandboxes:
                _changed(context, one, labels, known)
        case Changed(sandbox):
            _changed(context, sandbox, labels, known)
        case Removed(ref):
            _removed(context, ref, known)
        case HealthChanged(health):
            _health_changed(context, health)
        case Gap(count):
            context.record({"event": "gap", "count": count}) if context.json else context.say(f"{count} events lost")
        case AuditChanged(reason) if reason:
            context.say(f"warning: the audit log cannot be written: {reason}")
        case _:
            pass


def _health_changed(context: Context, health: BackendHealth) -> None:
    if context.json:
        context.record({"event": "backend"} | json_output.health(health))
    elif not health.ok and health.state is not HealthState.CONNECTING:
        context.say(f"{lookup.host_label(health)}: {health.state}: {health.reason}")


def _changed(context: Context, sandbox: Sandbox, labels: dict[str, str], known: dict[SandboxRef, Sandbox]) -> None:
    if known.get(sandbox.ref) == sandbox:
        return
    if not wanted(sandbox, labels, everything=context.args.all):
        _removed(context, sandbox.ref, known)  # it was shown but no longer matches: it is another tool's, and stopped
        return
    known[sandbox.ref] = sandbox
    if context.json:
        context.record({"event": "sandbox"} | json_output.sandbox(sandbox))
    else:
        context.text("  ".join(row(sandbox, context.now())).rstrip())


def _removed(context: Context, ref: SandboxRef, known: dict[SandboxRef, Sandbox]) -> None:
    gone = known.pop(ref, None)
    if gone is None:
        return
    if context.json:
        context.record({"event": "removed", "name": gone.name, "ref": str(ref)})
    else:
        context.text(f"{gone.name}  removed  {ref}")


async def show(context: Context) -> int:
    """Show one sandbox. ``--toml`` prints the spec as ``create -f`` reads it."""
    async with context.open() as console:
        sandbox = await console.inspect((await lookup.find(context, console, context.args.name, changing=False)).ref)
        rows = [row for row in await console.drifts.fields(sandbox) if row.state is DriftState.DRIFTED]
        shells = [shell for shell in await console.kept_shells.list() if shell.ref == sandbox.ref]
        host = console.host_options(sandbox.ref.backend, sandbox.ref.host)
    if context.args.toml:
        _toml(context, sandbox)
    elif context.json:
        context.record(
            json_output.details(sandbox, rows)
            | {"kept_shells": [shell.name for shell in shells]}
            | {"host_groups": list(host.groups), "host_labels": dict(host.labels)}
        )
    else:
        differs = [(f"drift {row.field}", _differs(row)) for row in rows]
        kept = [("kept shell", f"{shell.name}  since {moment(shell.began)}, by {shell.actor}") for shell in shells]
        there = [("host", f"{sandbox.ref.host}  {' '.join(host.words)}")] if host.words else []
        for key, value in [*facts(sandbox), *there, *differs, *kept]:
            context.text(f"{key:<20}  {value}".rstrip())
    return 0


def _toml(context: Context, sandbox: Sandbox) -> None:
    if sandbox.spec is None:
        raise Conflict(f"{sandbox.name} was not made by this console, so its spec is not known")
    text = tomli_w.dumps(sandbox.spec.to_dict())
    if not context.streams.out.tty:
        context.streams.out.write(text.encode())
        return
    for line in text.splitlines():
        context.text(line)


def facts(sandbox: Sandbox) -> list[tuple[str, str]]:
    """The facts shown about a sandbox, one key and value per line."""
    lines = [
        ("name", sandbox.name),
        ("ref", str(sandbox.ref)),
        ("state", " ".join(filter(None, [str(sandbox.status), sandbox.detail]))),
        ("made by", "this console" if sandbox.managed else sandbox.maker or "another tool"),
        ("image", sandbox.image or "-"),
        ("created", moment(sandbox.created_at)),
        ("started", moment(sandbox.started_at)),
        ("finished", moment(sandbox.finished_at)),
        ("exit", " ".join(filter(None, [exit_text(sandbox), sandbox.exit.reason if sandbox.exit else ""]))),
    ]
    lines += [("label", f"{key}={value}") for key, value in sorted(sandbox.labels.items())]
    asked = sandbox.spec.to_dict() if sandbox.spec else {}
    lines += [(f"asked {key}", asked_text(key, asked[key])) for key in asked if key not in ("name", "image", "labels")]
    for fact in sandbox.effective:
        note = "; ".join(filter(None, ["" if fact.enforced else "not enforced", fact.note]))
        lines.append((f"has {fact.field}", f"{fact.value} ({note})" if note else fact.value))
    return lines


def _differs(row: FieldDrift) -> str:
    by = f"{row.by}, {moment(row.at)}" if row.at is not None else row.by
    return f"asked {asked_text(row.field, row.asked)}, found {asked_text(row.field, row.found)} ({by})"


def asked_text(field: str, value: object) -> str:
    """A spec's value as it may be shown, with variables masked by the model."""
    return plain(shown_env(value) if field == "env" and isinstance(value, Mapping) else value)


def plain(value: object) -> str:
    """A spec's value as a person writes it: a command in a shell's syntax, a table as K=V."""
    if isinstance(value, (tuple, list)):
        return shlex.join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items()) or "-"
    return "-" if value in (None, "") else str(value)
