"""What programs may do over HTTP and MCP: the tables ``[api]``, ``[mcp]`` and ``[templates.NAME]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from sandbox_console.errors import InvalidSpec
from sandbox_console.model import check
from sandbox_console.model.spec import SandboxSpec

AtLeastOne = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]

McpTool = Literal[
    "list", "inspect", "logs", "why", "denied", "create", "exec", "read_file", "write_file", "ask_host", "remove"
]

READING: tuple[McpTool, ...] = ("list", "inspect", "logs", "why", "denied")
"""MCP tools that change nothing; the default of ``[mcp] allow``."""


class ApiOptions(Struct, frozen=True, kw_only=True):
    """The ``[api]`` table: what agents may ask for over HTTP.

    ``images`` are shell patterns of what a caller may name. A caller has the template ``template``, or one of ``allow``
    where a label ``template`` names it; the template says what callers cannot: secrets, egress and, where it has one,
    the image that is taken in place of the one named. ``max_sandboxes`` are for all, ``max_per_bucket`` for one
    workspace; ``max_calls`` of one workspace run at a time. With ``grants = "optional"`` a token alone will do.
    ``workspaces`` is a folder with a folder for each bucket, which its sandboxes have as /workspace.
    """

    backend: str = ""
    grants: Literal["required", "optional"] = "required"
    audience: tuple[str, ...] = ()
    images: tuple[str, ...] = ("python:3.11-slim",)
    template: str = ""
    allow: tuple[str, ...] = ()
    workspaces: str = ""
    max_sandboxes: AtLeastOne = 16
    max_per_bucket: AtLeastOne = 4
    max_calls: AtLeastOne = 8
    max_memory_mib: AtLeastOne = 4096
    max_cpus: Positive = 4.0
    max_timeout_s: Positive = 1200.0


class ServeTable(Struct, frozen=True, kw_only=True):
    """The ``[serve]`` table: what ``serve`` takes where its options do not say otherwise. Times are as in 8h or 90s."""

    open: bool = False
    hostname: tuple[str, ...] = ()
    prefix: str = ""
    trust_proxy: tuple[str, ...] = ()
    socket: str = ""
    max_sessions: AtLeastOne = 8
    keep: str = "8h"
    idle_timeout: str = "1h"


class McpOptions(Struct, frozen=True, kw_only=True):
    """The ``[mcp]`` table: the tools there are, the templates to create from, and which sandboxes are seen.

    ``labels`` are ``KEY=VALUE``, all of which a sandbox must have to be seen; those that a tool creates get them.
    """

    backend: str = ""
    allow: tuple[McpTool, ...] = READING
    templates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    max_sandboxes: AtLeastOne = 4
    max_output_kib: AtLeastOne = 64
    max_timeout_s: Positive = 300.0


def from_template(templates: Mapping[str, Mapping[str, Any]], template: str, name: str) -> SandboxSpec:
    """A spec of a ``[templates.NAME]`` table; of none where ``template`` is empty. Raises InvalidSpec."""
    return SandboxSpec.from_dict({**(templates[template] if template else {}), "name": name})


def template_problem(templates: Mapping[str, Mapping[str, Any]], template: str) -> str:
    """What is wrong with a template, in words; empty when nothing is."""
    if "name" in templates[template]:
        return "name: a template has none of its own"
    try:
        spec = from_template(templates, template, "x")
    except InvalidSpec as error:
        return error.message
    return "; ".join(f"{field}: {text}" for field, text in check.problems(spec, allow_ip=True).items())


def with_labels(spec: SandboxSpec, labels: Mapping[str, str]) -> SandboxSpec:
    """The spec with these labels over its own."""
    return structs.replace(spec, labels={**spec.labels, **labels})
