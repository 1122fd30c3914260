"""The sandboxes of callers: who owns them, how many there may be, and what callers may request."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from sandbox_console import service
from sandbox_console.errors import Denied, InvalidSpec, NotFound, UsageError
from sandbox_console.library import Console, SandboxHandle, SandboxSpec
from sandbox_console.model.access import access
from sandbox_console.model.action import Action, Create
from sandbox_console.servers.api.authentication import Caller
from sandbox_console.servers.api.leftovers import RUN
from sandbox_console.servers.api.listing import BUCKET, MADE_HERE, SUBJECT, TOKEN, Box, Listing, box_of
from sandbox_console.servers.api.schemas import CreateBody, RunBody
from sandbox_console.service.server_options import from_template, may_name, with_labels

OWN = ("a2a.", "msb.", "mcp.", "sandbox-console.")
"""The beginnings of labels that callers cannot set: those of this server, and with which others know their callers."""

_NAME = "a2a.name"
_IDLE = ("sleep", "2147483647")
TEMPLATE = "template"
"""The label with which a caller names one of the allowed templates."""


class Sandboxes:
    """The sandboxes of callers on one console, by name. ``run`` marks those that are removed after one command."""

    def __init__(self, opened: service.Console, run: str) -> None:
        self._opened = opened
        self.console = Console(opened)
        self._options = opened.config.api
        self._run = run
        self._listing = Listing(opened, self._options.backend)
        self._coming: dict[str, str] = {}
        self._host: tuple[str, str] | None = None

    async def close(self) -> None:
        """End the requests to backends."""
        await self._listing.close()

    async def names(self, caller: Caller) -> list[str]:
        """The names of the token's sandboxes; with a grant, only those of its agent and bucket.

        Raises BackendUnreachable if a host that may have some does not answer.
        """
        await self._listing.refresh()
        self._listing.need_all()
        boxes = self._listing.boxes.values()
        return sorted(
            box.name
            for box in boxes
            if box.token == caller.token and (not caller.bucket or box.belongs_to(caller)) and access().sees(box.labels)
        )

    async def box(self, name: str) -> Box:
        """The sandbox with a name, whose owner the caller has to check. Raises NotFound, BackendUnreachable."""
        if name not in self._listing.boxes and MADE_HERE.match(name):
            await self._listing.refresh()
            if name not in self._listing.boxes:
                self._listing.need_all()
        if name not in self._listing.boxes or not access().sees(self._listing.boxes[name].labels):
            raise NotFound("no sandbox has that name", hint="GET /v1/sandboxes")
        return self._listing.boxes[name]

    def handle(self, box: Box) -> SandboxHandle:
        """The sandbox to act on."""
        return SandboxHandle(self._opened, box.ref, box.name, service.Consent())

    def forget(self, box: Box) -> None:
        """Forget a sandbox that is gone."""
        self._listing.forget(box)

    async def refuse(self, action: Action, denied: Denied) -> None:
        """Record an action that a caller may not do, and raise ``why``."""
        await self._opened.refuse(action, denied)

    async def create(self, caller: Caller, body: CreateBody) -> Box:
        """Make a sandbox that stays. Raises Denied (with a row) if it is not allowed, UsageError, ConsoleError."""
        spec = self._spec(caller, body, body.labels | ({_NAME: body.name} if body.name else {}))
        async with self._room(caller, spec, body):
            handle = await self.console.create(spec, backend=self._options.backend)
        self._listing.add(box := box_of(handle.ref, spec))
        return box

    @asynccontextmanager
    async def once(self, caller: Caller, body: RunBody) -> AsyncIterator[SandboxHandle]:
        """A sandbox for as long as the block lasts, which also ends if the caller goes away."""
        spec = self._spec(caller, body, body.labels | {RUN: self._run})
        if body.network_disabled:
            spec = structs.replace(spec, egress=())
        async with self._room(caller, spec, body), self.console.create(spec, backend=self._options.backend) as handle:
            yield handle

    def _spec(self, caller: Caller, body: CreateBody | RunBody, labels: dict[str, str]) -> SandboxSpec:
        if own := next((key for key in body.labels if key.startswith(OWN)), ""):
            raise UsageError(f"labels: {own!r} is the server's own")
        template = body.labels.get(TEMPLATE, self._options.template)
        if template not in (self._options.template, *self._options.allow):
            raise UsageError(f"labels: there is no template {template!r}", hint="see [api] allow of the server")
        spec = from_template(self._opened.config.templates, template, f"sb-{secrets.token_hex(6)}")
        owner = {TOKEN: caller.token, SUBJECT: caller.subject, BUCKET: body.bucket}
        spec = with_labels(spec, {**access().labels, **labels, **owner})
        return structs.replace(
            spec, image=spec.image or body.image, command=spec.command or _IDLE,
            workspace=self._workspace(body.bucket) or spec.workspace,
            memory_mib=body.memory_mib or spec.memory_mib, cpus=body.cpus or spec.cpus,
        )  # fmt: skip

    def _workspace(self, bucket: str) -> str:
        """The bucket's folder; empty if buckets are only names. Raises InvalidSpec if it has none.

        Callers make no folders, because anybody with only a token could fill a disk with them.
        """
        if not self._options.workspaces:
            return ""
        folder = Path(self._options.workspaces).expanduser() / bucket
        if not folder.is_dir():
            raise InvalidSpec(
                {"bucket": f"{bucket} has no folder here"}, hint="the person who runs the server creates it"
            )
        return str(folder)

    @asynccontextmanager
    async def _room(self, caller: Caller, spec: SandboxSpec, body: CreateBody | RunBody) -> AsyncIterator[None]:
        """Reserve a place for one more sandbox while it is made, within the limits. Raises Denied, with its row."""
        if denied := self._not_allowed(caller, spec, body):
            await self._opened.refuse(await self._action(spec), denied)
        await self._listing.refresh()
        if full := self._full(body.bucket):
            await self._opened.refuse(await self._action(spec), full)
        self._coming[spec.name] = body.bucket
        try:
            yield
        finally:
            del self._coming[spec.name]

    def _not_allowed(self, caller: Caller, spec: SandboxSpec, body: CreateBody | RunBody) -> Denied | None:
        options = self._options
        if caller.bucket and caller.bucket != body.bucket:
            return Denied("the grant is for another bucket", rule="api.bucket")
        if not may_name(body.image, options.images):
            return Denied(f"image {body.image!r} is not among those allowed", rule="api.images")
        for field, cap in (("memory_mib", options.max_memory_mib), ("cpus", options.max_cpus)):
            if (getattr(spec, field) or 0) > cap:
                return Denied(f"{field} is above the maximum of {cap:g}", rule=f"api.max_{field}")
        return None

    def _full(self, bucket: str) -> Denied | None:
        listing = self._listing
        there = dict.fromkeys(listing.unseen, "") | {box.name: box.bucket for box in listing.boxes.values()}
        there |= self._coming
        if len(there) >= self._options.max_sandboxes:
            return Denied(f"there are {len(there)} sandboxes, the most allowed", rule="api.max_sandboxes")
        own = sum(one == bucket for one in there.values())
        if own >= self._options.max_per_bucket:
            return Denied(f"the bucket has {own} sandboxes, the most allowed", rule="api.max_per_bucket")
        return None

    async def _action(self, spec: SandboxSpec) -> Create:
        if self._host is None:
            self._host = await self._opened.place_for(self._options.backend)
        return Create(spec, *self._host)
