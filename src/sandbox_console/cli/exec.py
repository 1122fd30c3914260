"""``exec`` runs a command in a sandbox as if it ran here; ``attach`` connects to the main process."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable, Sequence

from msgspec import structs

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context, OutputClosed, colours
from sandbox_console.cli.lifecycle import seconds
from sandbox_console.cli.lookup import find, within
from sandbox_console.cli.spec_options import pairs
from sandbox_console.cli.stdin import chunks
from sandbox_console.errors import BackendError, UsageError
from sandbox_console.model.action import Attach, Exec
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.text import LINE_CAP, clean
from sandbox_console.service import ActionResult, ExecIO, Operation

_UNRUNNABLE = {
    126: "exit code 126: it, or what it ran, cannot be run",
    127: "exit code 127: it, or what it ran, was not found",
}
"""The message for a command that could not be run, if there was no other message: a shell prints one itself."""

_BEGUN = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z|\r\Z")  # the next chunk may turn this into a colour or a line's end


async def exec_(context: Context) -> int:
    """Run a command and return its exit code, or 124 if ``--timeout`` ran out.

    Standard input is passed on unless it is a terminal, which is left alone, so that text typed ahead is not lost.
    Output goes to a pipe or a file unchanged, and to a terminal cleaned. With ``--json`` it is printed as objects, the
    last of which has the exit code.
    """
    request = _request(context)
    async with context.open() as console:
        sandbox = await find(context, console, context.args.name, changing=True)
        sandbox = await within(context, console, sandbox)
        request = structs.replace(request, ref=sandbox.ref)
        output = Output(context)
        # The operation reads stdin and stops reading itself: closing it here would interrupt a read.
        io = ExecIO(chunks(context.streams.stdin), output.give)
        operation = console.perform(request, consent=context.consent(sandbox.ref.id), io=io)
        output.on_closed = operation.cancel
        result = await result_of(operation, output)
        output.end()
    without = result.details.get("without_secrets")
    if context.json:
        data = {"exit_code": result.exit_code, "timed_out": result.timed_out, "audit_id": result.audit_id}
        context.record(data | ({"without_secrets": without} if without else {}))
    say_without(context, without if isinstance(without, list) else ())
    if result.timed_out:
        context.say(f"timed out after {request.timeout_s:g} s")
    if result.exit_code in _UNRUNNABLE and not output.complained:
        context.say(f"{sandbox.name}: {request.argv[0]}: {_UNRUNNABLE[result.exit_code]}")
    if result.exit_code is None:
        raise BackendError("the command ended, but its exit code is not known")
    return result.exit_code


def say_without(context: Context, names: Sequence[str]) -> None:
    """Report the secrets that a sandbox was entered without."""
    if names:
        each = "it is" if len(names) == 1 else "they are"
        listed = ", ".join(names)
        context.say(f"note: {listed} cannot be read here: {each} not passed on, and not masked in output")


def _request(context: Context) -> Exec:
    args = context.args
    if not args.command:
        raise UsageError("no command was given", hint=f"sandbox-console exec {args.name} -- CMD ARG...")
    timeout = None if args.timeout is None else seconds(args.timeout, "timeout")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"--timeout: {args.timeout} is not above 0", hint="as in 90s, 15m, 2h")
    env = pairs(args.env, "env")
    return Exec(SandboxRef("", "", ""), tuple(args.command), env, args.workdir, args.user, timeout, record=args.record)


async def result_of(operation: Operation, output: Output) -> ActionResult:
    """The operation's result. Raises OutputClosed if it was ended because nobody reads our output."""
    try:
        return await operation.result()
    except asyncio.CancelledError:
        if output.closed:
            raise OutputClosed from None
        raise


class Output:
    """Passes the guest's output on to ours, each stream separately."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[Stream, bytes] = {}
        self._cleaners: dict[Stream, LineCleaner] = {}
        self.closed = self.complained = False
        self.on_closed: Callable[[], None] = lambda: None

    async def give(self, stream: Stream, data: bytes) -> None:
        """Pass a chunk on. If nobody reads any more, end the command, as a broken pipe ends a local one."""
        try:
            await self._give(stream, data)
        except OutputClosed:
            self.closed = True
            self.on_closed()

    async def _give(self, stream: Stream, data: bytes) -> None:
        self.complained = self.complained or stream is Stream.STDERR
        sink = self._context.streams.err if stream is Stream.STDERR else self._context.streams.out
        if self._context.json:
            data, self._held[stream] = json_output.whole_characters(self._held.get(stream, b"") + data)
            if data:
                self._context.record({"stream": str(stream)} | json_output.payload(data))
        elif sink.tty:
            cleaner = self._cleaners.setdefault(stream, LineCleaner(keep_sgr=colours(sink)))
            await sink.stream(cleaner.feed(data))
        else:
            await sink.stream(data)

    def end(self) -> None:
        """Print what waited for the rest of a character or of a line."""
        for stream, held in self._held.items():
            if held:
                self._context.record({"stream": str(stream)} | json_output.payload(held))
        for stream, cleaner in self._cleaners.items():
            (self._context.streams.err if stream is Stream.STDERR else self._context.streams.out).write(cleaner.flush())


async def attach(context: Context) -> int:
    """Connect to the main process. Returns its exit code if it ends meanwhile. Ctrl+C detaches and leaves it running.

    Its earlier output is in ``logs``. Standard input is passed on unless it is a terminal.
    """
    async with context.open() as console:
        sandbox = await find(context, console, context.args.name, changing=True)
        output = Output(context)
        io = ExecIO(None if context.args.no_stdin else chunks(context.streams.stdin), output.give)
        operation = console.perform(Attach(sandbox.ref), consent=context.consent(sandbox.ref.id), io=io)
        output.on_closed = operation.cancel
        result = await result_of(operation, output)
        output.end()
    if context.json:
        context.record({"exit_code": result.exit_code, "audit_id": result.audit_id})
    if result.exit_code is None:
        reason = str(result.details.get("end") or "how is not known")
        raise BackendError(
            f"{sandbox.name}: the attachment ended: {reason}", hint=f"sandbox-console show {sandbox.ref}"
        )
    return result.exit_code


class LineCleaner:
    """Makes a guest's output safe for a terminal, chunk by chunk.

    Line ends and tabs are kept; all other control characters are made visible. A partial line is shown at once.
    """

    def __init__(self, *, keep_sgr: bool) -> None:
        self._keep_sgr = keep_sgr
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> bytes:
        """Clean a chunk. The beginning of a colour or of a character waits for its end."""
        text = self._held + self._decoder.decode(data)
        begun = _BEGUN.search(text, max(0, len(text) - 80))
        self._held = text[begun.start() :] if begun else ""
        return self._clean(text[: begun.start()] if begun else text)

    def flush(self) -> bytes:
        """Clean what was held back."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return self._clean(text)

    def _clean(self, text: str) -> bytes:
        lines = text.replace("\r\n", "\n").split("\n")
        return "\n".join(clean(line, keep_sgr=self._keep_sgr, cap=LINE_CAP) for line in lines).encode()
