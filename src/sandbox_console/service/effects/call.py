"""The arguments of an effect, beside its permit."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from sandbox_console.backends.base import Backend, Progress, Secrets
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.gate.operation import ExecIO


class Call(Struct, frozen=True):
    """Everything that an effect needs beside the permit."""

    backend: Backend
    target: Sandbox | None
    secrets: Secrets
    progress: Progress
    io: ExecIO = field(default_factory=ExecIO)
    redactor: Redactor = field(default_factory=Redactor)
    injects: Mapping[str, str] = field(default_factory=dict)
