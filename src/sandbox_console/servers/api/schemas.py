"""The types that callers of the API send and receive. The OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

BUCKET = r"^(user-[0-9]{1,32}-files|agent-[A-Za-z0-9_.-]{1,96})$"
"""The name of a workspace bucket in a2a_pack's contract."""

Bucket = Annotated[str, Meta(pattern=BUCKET, max_length=128, examples=["agent-one"])]
Text = Annotated[str, Meta(max_length=256)]
Script = Annotated[str, Meta(min_length=1, max_length=1 << 20)]
Memory = Annotated[int, Meta(ge=4, le=1 << 24)]
Cpus = Annotated[float, Meta(gt=0, le=1024)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Labels = dict[Annotated[str, Meta(min_length=1, max_length=64)], Text]


class CreateBody(Struct, forbid_unknown_fields=True):
    """A sandbox that stays until it is deleted. The server chooses its name; ``name`` is stored as a label."""

    bucket: Bucket
    name: Text = ""
    image: Text = "python:3.11-slim"
    memory_mib: Memory | None = None
    cpus: Cpus | None = None
    labels: Labels = field(default_factory=dict)


class ExecBody(Struct, forbid_unknown_fields=True):
    """A command: ``cmd`` with ``args`` unchanged, or a ``script`` for /bin/sh."""

    cmd: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    args: Annotated[list[Annotated[str, Meta(max_length=1 << 17)]], Meta(max_length=4096)] = field(default_factory=list)
    script: Script | None = None
    timeout_seconds: Seconds | None = None


class RunBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of both one-shot calls. ``network_disabled`` removes the template's egress."""

    bucket: Bucket
    image: Text = "python:3.11-slim"
    timeout_seconds: Seconds | None = None
    memory_mib: Memory | None = None
    cpus: Cpus | None = None
    network_disabled: bool = False
    labels: Labels = field(default_factory=dict)


class ShellBody(RunBody, forbid_unknown_fields=True, kw_only=True):
    """A script in a sandbox of its own, which is gone when the answer arrives."""

    script: Annotated[Script, Meta(examples=["echo hello"])]


class PythonBody(RunBody, forbid_unknown_fields=True, kw_only=True):
    """Python code in a sandbox of its own, which is gone when the answer arrives."""

    code: Annotated[Script, Meta(examples=["print(6 * 7)"])]


class Created(Struct):
    """The sandbox that was made."""

    name: str
    image: str
    bucket: str


class Ended(Struct):
    """How a command ended: 124 after a timeout, 126 if the network could not be set up.

    ``stdout`` and ``stderr`` are the first MiB of each; ``files`` is always empty here.
    """

    stdout: str
    stderr: str
    exit_code: int
    truncated: bool = False
    files: list[str] = field(default_factory=list)


class Problem(Struct):
    """Why a call failed. ``audit_id`` is its row in the audit log, if it has one."""

    detail: str
    code: str
    hint: str = ""
    audit_id: int | None = None
