"""How often a verb on many sandboxes asks the engine for its list: counted at the socket."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.cli.conftest import Cli

from sandbox_console.backends.docker.labels import INSTALLATION, MADE, MANAGED, SPEC
from sandbox_console.model.spec import SandboxSpec

COUNT = 400
CONFIG = "[backends.bubblewrap]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
OK = {"Version": "27.0", "ApiVersion": "1.47", "Os": "linux", "ID": "x"}


class CountingEngine:
    """Answers as an engine with many containers of this console, each with a workspace, and counts what it is asked."""

    def __init__(self, workspace: str) -> None:
        self.asked = Counter[str]()
        self.workspace = workspace
        self.containers = {f"{at:064x}": f"box-{at:04}" for at in range(COUNT)}
        self.running = set(self.containers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            if length := re.search(rb"(?i)content-length: (\d+)", head):
                await reader.readexactly(int(length[1]))
            method, target = head.split()[:2]
            code, found = self.answer(method.decode(), target.decode())
            body = b"" if code == 204 else json.dumps(found).encode()
            writer.write(f"HTTP/1.1 {code} OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    def answer(self, method: str, target: str) -> tuple[int, object]:
        path = re.sub(r"^/v[\d.]+", "", target.partition("?")[0]).strip("/")
        words = path.split("/")
        if words[0] != "containers":
            self.asked[words[0]] += 1
            return 200, OK
        if words[1] == "json":
            self.asked["list"] += 1
            return 200, [self.row(one) for one in self.containers]
        id_, verb = words[1], words[2] if len(words) > 2 else "remove"
        self.asked[verb] += 1
        if id_ not in self.containers:
            return 404, {"message": f"No such container: {id_}"}
        if verb == "json":
            return 200, self.details(id_)
        if verb == "wait":
            return 200, {"StatusCode": 137}
        if method == "DELETE":
            del self.containers[id_]
            self.running.discard(id_)
        elif verb == "start":
            self.running.add(id_)
        else:
            self.running.discard(id_)
        return 204, None

    def labels(self, id_: str) -> dict[str, str]:
        spec = SandboxSpec(self.containers[id_], "i", labels={"team": "x"}, workspace=self.workspace)
        return {**spec.labels, MANAGED: "1", INSTALLATION: "own", MADE: "m", SPEC: json.dumps(spec.to_dict())}

    def row(self, id_: str) -> dict[str, object]:
        mount = {"Type": "bind", "Source": self.workspace, "Destination": "/workspace", "RW": True}
        state = "running" if id_ in self.running else "exited"
        return {"Id": id_, "Names": [f"/{self.containers[id_]}"], "Image": "i", "ImageID": "sha256:1", "State": state,
                "Labels": self.labels(id_), "Created": 1, "Mounts": [mount]}  # fmt: skip

    def details(self, id_: str) -> dict[str, object]:
        row = self.row(id_)
        state = {"Status": row["State"], "Running": id_ in self.running, "Pid": 1, "ExitCode": 0}
        return {**row, "Name": f"/{self.containers[id_]}", "Created": "2026-01-01T00:00:00Z", "State": state,
                "Config": {"Labels": self.labels(id_), "Image": "i"}, "HostConfig": {}, "NetworkSettings": {}}  # fmt: skip


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Iterator[CountingEngine]:
    (tmp_path / "work").mkdir()
    made = CountingEngine(str(tmp_path / "work"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.start_unix_server(made.serve, tmp_path / "s"))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield made
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def cli(tmp_path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    state = home / "state" / "backends" / "docker"
    state.mkdir(parents=True)
    (state / "installation").write_text("own")
    return Cli(home)


def failures(done: subprocess.CompletedProcess[bytes]) -> dict[str, int]:
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return Counter(row["error"]["code"] if row["error"] else "ok" for row in rows)


@pytest.mark.parametrize("verb", ["stop", "kill", "start", "rm"])
def test_names_are_found_in_one_list_and_each_has_its_result(cli: Cli, engine: CountingEngine, verb: str) -> None:
    if verb == "start":
        engine.running.clear()
    names = [*engine.containers.values(), "nope"]
    done = cli(verb, *names, "--json", *(["--force"] if verb == "rm" else []))
    assert (done.returncode, failures(done)) == (3, {"ok": COUNT, "not_found": 1}), done.stderr
    # the folders that are no guest's any more are found out by one more list, at the end
    assert engine.asked["list"] == (2 if verb == "rm" else 1)
    assert len(engine.containers) == (0 if verb == "rm" else COUNT)
    assert len(engine.running) == (COUNT if verb == "start" else 0)


def test_a_label_is_found_in_one_list(cli: Cli, engine: CountingEngine) -> None:
    done = cli("stop", "-l", "team=x", "--yes", "--json")
    assert (done.returncode, failures(done)) == (0, {"ok": COUNT}), done.stderr
    assert engine.asked["list"] == 1
