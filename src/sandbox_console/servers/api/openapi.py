"""The API's description in OpenAPI 3.1, made from the types that its bodies are parsed into."""

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


_ONE = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def document() -> dict[str, Any]:
    """The whole document."""
    found, components = msgspec.json.schema_components(_KINDS, ref_template="#/components/schemas/{name}")
    schema = {kind.__name__: ref for kind, ref in zip(_KINDS, found, strict=True)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "sandbox-console", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": _paths(schema),
        "components": {
            "schemas": dict(components),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "grant": {"type": "apiKey", "in": "header", "name": GRANT_HEADER},
            },
        },
    }


def _paths(schema: dict[str, Any]) -> dict[str, Any]:
    names = {"type": "array", "items": {"type": "string"}}
    refused = {code: _response(text, schema["Problem"]) for code, text in _REFUSALS.items()}
    created, ended = _response("it runs", schema["Created"]), _response("how it ended", schema["Ended"])

    def call(
        id: str, about: str, code: str, answer: dict[str, Any], body: str = "", parameters: tuple[Any, ...] = ()
    ) -> dict[str, Any]:
        operation: dict[str, Any] = {"summary": about, "security": [{"bearer": [], "grant": []}, {"bearer": []}]}
        operation["responses"] = {code: answer} | refused
        if body:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema[body]}}}
        return operation | ({"parameters": [*parameters]} if parameters else {}) | {"operationId": id}

    lists = call("list", "names of the caller's sandboxes", "200", _response("names", names))
    alive = {"200": _response("it does", {"type": "object"}), "403": refused["403"], "421": refused["421"]}
    return {
        "/healthz": {"get": {"summary": "whether the server answers", "security": [], "responses": alive}},
        "/v1/sandboxes": {
            "get": lists | {"security": [{"bearer": []}]},
            "post": call("create", "make a sandbox", "200", created, "CreateBody"),
        },
        "/v1/sandboxes/{name}": {
            "delete": call("remove", "remove a sandbox", "204", {"description": "it is gone"}, "", (_ONE,)),
        },
        "/v1/sandboxes/{name}/exec": {"post": call("exec", "run a command", "200", ended, "ExecBody", (_ONE,))},
        "/v1/run_shell": {"post": call("run_shell", "run a script in a sandbox of its own", "200", ended, "ShellBody")},
        "/v1/run_python": {
            "post": call("run_python", "run Python code in a sandbox of its own", "200", ended, "PythonBody"),
        },
    }


def _response(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
