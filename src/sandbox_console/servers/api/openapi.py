"""The API's description in OpenAPI 3.1, made of the types that its bodies are read by."""

from __future__ import annotations

from typing import Any

import msgspec

from sandbox_console.servers.api.authentication import GRANT_HEADER
from sandbox_console.servers.api.schemas import CreateBody, Created, Ended, ExecBody, Problem, PythonBody, ShellBody
from sandbox_console.version import __version__

_KINDS = (CreateBody, ExecBody, ShellBody, PythonBody, Created, Ended, Problem)
_REFUSALS = {
    "400": "the request is not valid, or asks for more than is allowed",
    "401": "no token, or no grant",
    "403": "a grant that is not valid, another bucket, someone else's sandbox, or the policy",
    "404": "no such sandbox",
    "405": "no such method here",
    "408": "the body came too slowly",
    "409": "the sandbox is not in a state that allows this",
    "413": "the body is too large",
    "415": "the body is not application/json",
    "421": "another host name",
    "429": "too many sandboxes or calls; wait",
    "500": "a bug, or a secret that cannot be read",
    "501": "the backend cannot do this",
    "502": "the backend failed",
    "503": "the backend or the audit log is not available",
    "504": "it took too long",
}


def document() -> dict[str, Any]:
    """The whole document."""
    found, components = msgspec.json.schema_components(_KINDS, ref_template="#/components/schemas/{name}")
    schema = {kind.__name__: ref for kind, ref in zip(_KINDS, found, strict=True)}
    ended, created = schema["Ended"], schema["Created"]
    names = {"type": "array", "items": {"type": "string"}}
    one = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    acting: list[dict[str, list[str]]] = [{"bearer": [], "grant": []}, {"bearer": []}]
    refused = {code: _response(text, schema["Problem"]) for code, text in _REFUSALS.items()}

    def call(about: str, answer: dict[str, Any], body: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        content = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}} if body else {}
        return {"summary": about, "security": acting, "responses": answer | refused, **content, **more}

    return {
        "openapi": "3.1.0",
        "info": {"title": "sandbox-console", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            "/healthz": {"get": {"summary": "whether the server answers", "security": [], "responses": {
                "200": _response("it does", {"type": "object"}), "403": refused["403"], "421": refused["421"]}}},
            "/v1/sandboxes": {
                "get": call("names of the caller's sandboxes", {"200": _response("names", names)},
                            operationId="list") | {"security": [{"bearer": []}]},
                "post": call("make a sandbox", {"200": _response("it runs", created)}, schema["CreateBody"],
                             operationId="create"),
            },
            "/v1/sandboxes/{name}": {
                "delete": call("remove a sandbox", {"204": {"description": "it is gone"}}, parameters=[one],
                               operationId="remove"),
            },
            "/v1/sandboxes/{name}/exec": {
                "post": call("run a command", {"200": _response("how it ended", ended)}, schema["ExecBody"],
                             parameters=[one], operationId="exec"),
            },
            "/v1/run_shell": {"post": call("run a script in a sandbox of its own",
                                           {"200": _response("how it ended", ended)}, schema["ShellBody"],
                                           operationId="run_shell")},
            "/v1/run_python": {"post": call("run Python code in a sandbox of its own",
                                            {"200": _response("how it ended", ended)}, schema["PythonBody"],
                                            operationId="run_python")},
        },
        "components": {
            "schemas": dict(components),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "grant": {"type": "apiKey", "in": "header", "name": GRANT_HEADER},
            },
        },
    }  # fmt: skip


def _response(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
