"""Options for programs: ``[api]``, ``[mcp]``, ``[microsandbox]``, ``[a3s_box]`` and ``[templates.NAME]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from sandbox_console.errors import InvalidSpec
from sandbox_console.model import check
from sandbox_console.model.access import access
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.oidc_options import OidcOptions

AtLeastOne = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]

McpTool = Literal[
    "list", "inspect", "logs", "why", "denied", "create", "exec", "read_file", "write_file", "ask_host", "remove"
]

READING: tuple[McpTool, ...] = ("list", "inspect", "logs", "why", "denied")
"""MCP tools that change nothing; the default of ``[mcp] allow``."""


API_OWNER = "a2a.token"
"""The label that every sandbox of the API has."""


class ApiOptions(Struct, frozen=True, kw_only=True):
    """The ``[api]`` table: what agents may request over HTTP.

    ``images`` are shell patterns of the images that a caller may name. A caller gets the template ``template``, or one
    of ``allow`` if a label ``template`` names it. The template sets what callers cannot: secrets, egress and, if it has
    one, the image, which then replaces the named one. ``max_sandboxes`` is the limit for all, ``max_per_bucket`` for
    one workspace, and ``max_calls`` of one workspace run at a time. With ``grants = "optional"`` a token alone is
    enough. ``workspaces`` is a folder with a folder for each bucket, which its sandboxes see as /workspace.
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


class MicrosandboxOptions(Struct, frozen=True, kw_only=True):
    """The ``[microsandbox]`` table: what old microsandbox clients may request over JSON-RPC.

    ``images`` are shell patterns of the images that a client may name. It gets ``template``, which sets what a client
    cannot and, if it has an image, replaces the named one.
    """

    backend: str = ""
    template: str = ""
    images: tuple[str, ...] = ("microsandbox/python", "microsandbox/node")
    max_sandboxes: AtLeastOne = 16
    max_calls: AtLeastOne = 8
    max_memory_mib: AtLeastOne = 4096
    max_cpus: Positive = 4.0
    max_timeout_s: Positive = 1200.0


class A3sBoxOptions(Struct, frozen=True, kw_only=True):
    """The ``[a3s_box]`` table: where programs of A3S Box's SDK get sandboxes.

    They get ``template``, which sets what such a program cannot and, if it has an image, replaces the named one.
    """

    backend: str = ""
    template: str = ""


class ServeTable(Struct, frozen=True, kw_only=True):
    """The ``[serve]`` table: the defaults for the options of ``serve``. Times are written like 8h or 90s."""

    open: bool = False
    hostname: tuple[str, ...] = ()
    prefix: str = ""
    trust_proxy: tuple[str, ...] = ()
    user_header: str = ""
    oidc: OidcOptions | None = None
    socket: str = ""
    max_sessions: AtLeastOne = 8
    keep: str = "8h"
    idle_timeout: str = "1h"


class McpOptions(Struct, frozen=True, kw_only=True):
    """The ``[mcp]`` table: the available tools, the templates to create from, and the visible sandboxes.

    ``labels`` are ``KEY=VALUE`` pairs. A sandbox must have all of them to be seen; those that a tool creates get them.
    """

    backend: str = ""
    allow: tuple[McpTool, ...] = READING
    templates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    max_sandboxes: AtLeastOne = 4
    max_output_kib: AtLeastOne = 64
    max_timeout_s: Positive = 300.0


def from_template(templates: Mapping[str, Mapping[str, Any]], template: str, name: str) -> SandboxSpec:
    """A spec from a ``[templates.NAME]`` table, or from none if ``template`` is empty. Raises InvalidSpec."""
    return SandboxSpec.from_dict({**(templates[template] if template else {}), "name": name})


def maker(labels: Mapping[str, str], label: str) -> str:
    """Who made a sandbox, by the label of a server. It is empty for one of the API, whose caller chose the label."""
    return "" if API_OWNER in labels else labels.get(label, "")


def may_name(image: str, patterns: Sequence[str]) -> bool:
    """Whether a caller may name an image: it matches one of the shell patterns.

    ``dir:PATH`` is a folder of the server's machine. For callers who are no admins it needs a pattern that says
    ``dir:``, as ``*`` speaks of images.
    """
    if image.startswith("dir:") and access().role != "admin":
        patterns = [pattern for pattern in patterns if pattern.startswith("dir:")]
    return any(fnmatchcase(image, pattern) for pattern in patterns)


def template_problem(templates: Mapping[str, Mapping[str, Any]], template: str) -> str:
    """What is wrong with a template, in words; empty if nothing is."""
    if "name" in templates[template]:
        return "name: a template has none of its own"
    try:
        spec = from_template(templates, template, "x")
    except InvalidSpec as error:
        return error.message
    return "; ".join(f"{field}: {text}" for field, text in check.problems(spec, allow_ip=True).items())


def with_labels(spec: SandboxSpec, labels: Mapping[str, str]) -> SandboxSpec:
    """The spec with these labels added; they override its own."""
    return structs.replace(spec, labels={**spec.labels, **labels})
