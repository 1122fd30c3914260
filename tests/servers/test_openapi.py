"""The API answers as its OpenAPI document says, to whatever is sent (schemathesis, a bounded run)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.servers.serving import Home, Server, grant


def test_schemathesis_finds_nothing(server: Server, token: str, tmp_path: Path, tidy: Path, home: Home) -> None:
    argv = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{server.url}/openapi.json", "--max-examples", "6",
        "-H", f"Authorization: Bearer {token}", "-H", f"X-A2A-Grant: {grant()}", "--phases", "examples,fuzzing",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--seed", "1", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Operations" in done.stdout, done.stdout
    rows = home.run("audit", "export", "--format", "jsonl").stdout
    assert "echo hello" in rows, "no example of run_shell was run"
    assert "print(6 * 7)" in rows, "no example of run_python was run"


async def test_the_document_names_every_call(call) -> None:
    async with call("GET", "/openapi.json", token="", grant="") as answer:
        found = json.loads(await answer.text())
    assert found["openapi"] == "3.1.0"
    calls = {(path, method) for path, methods in found["paths"].items() for method in methods}
    assert calls == {
        ("/healthz", "get"),
        ("/v1/sandboxes", "get"),
        ("/v1/sandboxes", "post"),
        ("/v1/sandboxes/{name}", "delete"),
        ("/v1/sandboxes/{name}/exec", "post"),
        ("/v1/run_shell", "post"),
        ("/v1/run_python", "post"),
    }
