"""A stand-in for A3S Box: the bridge of its program, over bubblewrap. All 52 operations are answered or refused.

Made from the SDK, a3s-box 3.2.7 of PyPI (its decoders say what an answer has), and for what an operation does from
``src/sdk/src/bridge.rs`` and ``src/runtime/src/box_record.rs`` of github.com/A3S-Lab/Box (c3f0013a, version 3 of the
bridge). The program is a script that passes a call on to this process, which keeps the sandboxes.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from a3s_box.runtime import SUPPORTED_BRIDGE_OPERATIONS

IMAGE = "standin/base:1"
_SCRIPT = """#!{python} -ISE
import socket, sys
if sys.argv[1:] != ["sdk-bridge"]:
    sys.exit("usage: a3s-box sdk-bridge")
with socket.socket(socket.AF_UNIX) as to:
    to.connect({socket!r})
    to.sendall(sys.stdin.buffer.read())
    to.shutdown(socket.SHUT_WR)
    while data := to.recv(65536):
        sys.stdout.buffer.write(data)
"""
_ENTER = 'cd -- "$0" && exec nice -n 0 "$@"'
_MOST = 16 << 20
_APART = ("--dev-bind", "/dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net", "--unshare-ipc",
          "--unshare-uts", "--die-with-parent")  # fmt: skip


class Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass
class Box:
    id: str
    asked: dict[str, Any]
    folder: Path
    generation: int = 1
    status: str = "running"
    exit: int | None = None
    started_at: str = ""
    logs: list[dict[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    outer: subprocess.Popen[bytes] | None = None
    pid: int = 0
    main: asyncio.Task[None] | None = None
    resources: list[dict[str, Any]] = field(default_factory=list)
    created_at: str = field(default_factory=now)

    def begin(self) -> None:
        """A jail of this machine's folders, read-only, whose /etc and /tmp are this box's own."""
        mine, its = os.pipe()
        binds = ["--bind", str(self.folder / "etc"), "/etc", "--bind", str(self.folder / "tmp"), "/tmp"]
        if folder := self.asked.get("workspace"):
            binds += ["--bind", folder, "/workspace"]
        if self.asked.get("read_only"):
            binds += ["--remount-ro", "/", "--remount-ro", "/etc"]
        words = ["bwrap", *root(), *_APART, *binds, "--info-fd", str(its), "sleep", "infinity"]
        self.outer = subprocess.Popen(words, pass_fds=[its])
        os.close(its)
        with os.fdopen(mine) as told:
            self.pid = json.load(told)["child-pid"]
        while not self._ready():
            time.sleep(0.002)
        self.status, self.exit, self.started_at = "running", None, now()

    def _ready(self) -> bool:
        """Whether its folders are mounted."""
        root = Path(f"/proc/{self.pid}/root")
        with suppress(OSError):
            return (root / "tmp").samefile(self.folder / "tmp") and (root / "bin/sh").exists()
        return False

    def inside(self) -> list[int]:
        """The processes in it, by their pids outside."""
        try:
            ours = Path(f"/proc/{self.pid}/ns/pid").readlink()
        except OSError:
            return []
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (one / "ns/pid").readlink() == ours:
                    found.append(int(one.name))
        return found

    def end(self, code: int, status: str = "stopped") -> None:
        outer, self.outer = self.outer, None
        if outer is not None:
            for pid in self.inside():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            outer.kill()
            outer.wait()
        self.status, self.exit = status, code

    async def start(self, words: list[str], env: dict[str, str], cwd: str, user: str | None, stdin: int):
        """A command in it, in its folder, as the user."""
        ids = []
        if user not in (None, "", "root"):
            uid, _, gid = user.partition(":")
            if not uid.isdecimal():
                raise Refused("runtime_error", f"unknown user {user}")
            ids = ["-S", uid, "-G", gid or uid]
        argv = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i", "-u", *ids, "sh", "-c", _ENTER, cwd, *words]
        return await asyncio.create_subprocess_exec(
            *argv, env={"PATH": os.environ["PATH"], "HOME": "/tmp", **env}, start_new_session=True,
            stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    def note(self, kind: str, process: str | None = None) -> None:
        self.events.append({"sequence": len(self.events) + 1, "timestamp_unix_ns": str(time.time_ns()),
                            "process_id": process, "kind": kind, "attributes": {}})  # fmt: skip

    def summary(self) -> dict[str, Any]:
        ended = self.status == "stopped" and self.exit is not None
        return {
            "id": self.id, "short_id": self.id[:12], "name": self.asked.get("name") or self.id,
            "image": self.asked["image"], "isolation": self.asked["isolation"], "status": self.status,
            "status_summary": f"stopped (Exit {self.exit})" if ended else self.status,
            "active": self.status in ("running", "paused"), "pid": self.pid or None,
            "cpus": self.asked.get("cpus") or 1, "memory_mb": self.asked.get("memory_mb") or 512, "ports": [],
            "command": self.asked.get("command") or [], "health": "none", "labels": self.asked["labels"],
            "created_at": self.created_at, "started_at": self.started_at or None, "network_name": None,
            "volume_names": [],
        }  # fmt: skip

    def told(self) -> dict[str, Any]:
        return {"sandbox_id": self.id, "generation": self.generation, "state": self.status,
                "isolation": self.asked["isolation"]}  # fmt: skip


def root() -> list[str]:
    """A root in which a mount point can be made."""
    words = []
    for one in sorted(Path("/").iterdir()):
        if one.is_symlink():
            words += ["--symlink", str(one.readlink()), str(one)]
        elif one.is_dir() and one.name not in ("dev", "proc", "tmp", "etc", "sys", "workspace"):
            words += ["--ro-bind", str(one), str(one)]
    return words


class A3s:
    """``asked`` are the calls that it got, ``answer`` replaces what it says to the next ones."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.boxes: dict[str, Box] = {}
        self.images = [IMAGE]
        self.saved: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.answer: bytes | None = None
        self._ids = itertools.count(1)

    def end(self) -> None:
        for box in self.boxes.values():
            box.end(137)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.read())
        self.asked.append(request)
        try:
            if self.answer is not None:
                told: Any = self.answer
            else:
                result = await self.operation(request)
                told = {"protocol_version": 4, "ok": True, "result": result}
        except Refused as error:
            told = {"protocol_version": 4, "ok": False, "error": {"code": error.code, "message": str(error)}}
        writer.write(told if isinstance(told, bytes) else json.dumps(told).encode())
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async def operation(self, asked: dict[str, Any]) -> dict[str, Any]:
        word = asked["operation"]
        if word not in SUPPORTED_BRIDGE_OPERATIONS:
            raise Refused("invalid_request", f"unknown variant `{word}`")
        if (one := getattr(self, word, None)) is None:
            raise Refused("unavailable", f"{word}: the stand-in does not have it")
        box = self.fenced(asked) if "generation" in asked else None
        done = one(asked) if box is None else one(asked, box)
        return await done if asyncio.iscoroutine(done) else done

    def fenced(self, asked: dict[str, Any]) -> Box:
        box = self.boxes.get(asked["sandbox_id"])
        if box is None:
            raise Refused("not_found", f"execution not found: {asked['sandbox_id']}")
        if box.generation != asked["generation"]:
            raise Refused(
                "conflict", f"sandbox {box.id} generation changed from {asked['generation']} to {box.generation}"
            )
        return box

    def sdk_capabilities(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"protocol_version": 4, "operations": [*SUPPORTED_BRIDGE_OPERATIONS]}

    def runtime_diagnostics(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"core_version": "3.2.7", "runtime_version": "3.2.7", "sdk_version": "3.2.7", "home": str(self.home),
                "virtualization": {"available": False, "backend": None, "details": "a stand-in"}}  # fmt: skip

    def image_list(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"images": [self._image(name) for name in self.images]}

    def _image(self, name: str) -> dict[str, Any]:
        return {"reference": name, "digest": f"sha256:{name.encode().hex()}", "size_bytes": 1000, "pulled_at": now(),
                "last_used": now(), "path": f"/images/{name}"}  # fmt: skip

    def image_pull(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "no-such" in asked["reference"]:
            raise Refused("runtime_error", f"manifest unknown: {asked['reference']}")
        self.images.append(asked["reference"])
        return self._image(asked["reference"])

    def image_remove(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.images.remove(asked["reference"])
        return {"reference": asked["reference"], "removed": True}

    def sandbox_list(self, asked: dict[str, Any]) -> dict[str, Any]:
        rows = [box.summary() for box in self.boxes.values()]
        return {"sandboxes": [row for row in rows if asked["all"] or row["active"]]}

    def sandbox_get(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [box.summary() for box in self.boxes.values() if asked["query"] in (box.id, box.asked.get("name"))]
        return {"sandbox": found[0] if found else None}

    async def sandbox_create(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["image"] not in self.images:
            raise Refused("runtime_error", f"failed to pull {asked['image']}: manifest unknown")
        if any(box.asked.get("name") == asked.get("name") for box in self.boxes.values()):
            raise Refused("conflict", f"the name {asked.get('name')} is taken")
        snapshot = asked.get("filesystem_snapshot_id")
        if snapshot and snapshot not in self.saved:
            raise Refused("not_found", f"no snapshot {snapshot}")
        id_ = f"box-{next(self._ids):08d}"
        box = Box(id_, asked, self.home / id_)
        source = self.home / f"snapshot-{snapshot}" if snapshot else None
        box.folder.mkdir()
        await asyncio.to_thread(copy, source / "etc" if source else Path("/etc"), box.folder / "etc")
        if source:
            await asyncio.to_thread(copy, source / "tmp", box.folder / "tmp")
        else:
            (box.folder / "tmp").mkdir()
            (box.folder / "tmp").chmod(0o1777)
        self.boxes[id_] = box
        self._run(box)
        return box.told()

    def _run(self, box: Box) -> None:
        box.begin()
        box.note("container-started")
        words = box.asked.get("command") or ["sleep", "infinity"]
        if box.asked.get("entrypoint"):
            words = [*box.asked["entrypoint"], *words]
        box.main = asyncio.ensure_future(self._main(box, words))

    async def _main(self, box: Box, words: list[str]) -> None:
        env, generation = box.asked["env"], box.generation
        process = await box.start(words, env, box.asked.get("workdir") or "/tmp", box.asked.get("user"), -3)

        async def keep(kind: str, stream: asyncio.StreamReader) -> None:
            rest = b""
            while chunk := await stream.read(1 << 20):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    box.logs.append({"stream": kind, "log": line.decode("utf-8", "replace") + "\n", "time": now()})
            if rest:
                box.logs.append({"stream": kind, "log": rest.decode("utf-8", "replace"), "time": now()})

        await asyncio.gather(keep("stdout", process.stdout), keep("stderr", process.stderr))
        code = await process.wait()
        if box.generation == generation and box.status in ("running", "paused"):
            box.note("container-stopped")
            box.end(code if code >= 0 else 128 - code)

    def sandbox_inspect(self, asked: dict[str, Any]) -> dict[str, Any]:
        box = self.boxes.get(asked["sandbox_id"])
        if box is None:
            raise Refused("not_found", f"execution not found: {asked['sandbox_id']}")
        return box.told()

    async def sandbox_stop(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        if box.status in ("running", "paused"):
            box.note("container-stopped")
            box.status = "killing"
            await asyncio.to_thread(box.end, 137)
        return box.told()

    async def sandbox_restart(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        assert asked["operation_id"]
        await self.sandbox_stop(asked, box)
        box.generation += 1
        box.events.clear()
        self._run(box)
        return box.told()

    def sandbox_remove(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        if box.status in ("running", "paused"):
            raise Refused("invalid_request", f"sandbox {box.id} must be stopped before removal")
        del self.boxes[box.id]
        return {"removed": True}

    async def sandbox_kill(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        await self.sandbox_stop(asked, box)
        return self.sandbox_remove(asked, box)

    def sandbox_pause(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        return self._frozen(box, "running", "paused", signal.SIGSTOP)

    def sandbox_resume(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        return self._frozen(box, "paused", "running", signal.SIGCONT)

    def _frozen(self, box: Box, before: str, after: str, number: int) -> dict[str, Any]:
        if box.status != before:
            raise Refused("conflict", f"sandbox {box.id} is {box.status}")
        for pid in box.inside():
            os.kill(pid, number)
        box.status = after
        return box.told()

    def sandbox_logs(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        return {"logs": box.logs[-asked["tail"] :]}

    def sandbox_processes(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        self._observable(box)
        found = [{"process_id": f"init-{pid}", "pid": pid, "terminal": False} for pid in box.inside()]
        return {"execution_id": box.id, "generation": box.generation, "processes": found}

    def sandbox_runtime_stats(self, _: dict[str, Any], box: Box) -> dict[str, Any]:
        self._observable(box)
        used, size = 0, 0
        for pid in box.inside():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used += int(words[11]) + int(words[12])
                size += int(words[21]) * 4096
        used_ns = used * 10**9 // os.sysconf("SC_CLK_TCK")
        return {
            "execution_id": box.id, "generation": box.generation, "timestamp_unix_ns": str(time.time_ns()),
            "cpu": {"usage_ns": used_ns, "user_ns": used_ns, "system_ns": 0, "throttled_ns": 0},
            "memory": {"usage_bytes": size, "limit_bytes": 512 << 20, "peak_bytes": None},
            "process_count": len(box.inside()), "metrics": {},
        }  # fmt: skip

    def _observable(self, box: Box) -> None:
        if box.status not in ("running", "paused"):
            raise Refused("conflict", f"sandbox {box.id} is {box.status}")

    async def sandbox_events(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        self._observable(box)
        until = time.monotonic() + (asked.get("wait_timeout_ms") or 0) / 1000
        while not (found := [one for one in box.events if one["sequence"] > asked["after_sequence"]]):
            if time.monotonic() >= until:
                break
            await asyncio.sleep(0.05)
        found = found[: asked["limit"]]
        last = found[-1]["sequence"] if found else asked["after_sequence"]
        return {"execution_id": box.id, "generation": box.generation, "events": found, "next_sequence": last}

    def sandbox_update_resources(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        box.resources.append(asked["resources"])
        return box.told()

    async def sandbox_snapshot_create(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        name = asked["snapshot_id"]
        for part in ("etc", "tmp"):
            await asyncio.to_thread(copy, box.folder / part, self.home / f"snapshot-{name}" / part)
        told = box.summary()
        self.saved[name] = {
            "id": name, "name": name, "source_box_id": box.id, "image": told["image"], "vcpus": told["cpus"],
            "memory_mb": told["memory_mb"], "volumes": [], "command": told["command"], "port_map": [],
            "labels": told["labels"], "network_mode": "none", "size_bytes": 1234, "created_at": now(), "description": "",
        }  # fmt: skip
        return {"snapshot_id": name, "size_bytes": 1234, "state": box.status, "generation": box.generation}

    def filesystem_snapshot_list(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"snapshots": [*self.saved.values()]}

    def filesystem_snapshot_get(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"snapshot": self.saved.get(asked["snapshot_id"])}

    def filesystem_snapshot_delete(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"snapshot_id": asked["snapshot_id"], "deleted": self.saved.pop(asked["snapshot_id"], None) is not None}

    async def command_run(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        if box.status != "running":
            raise Refused("conflict", f"sandbox {box.id} is {box.status}")
        env = {**box.asked["env"], **asked["env"]}
        pipe = asyncio.subprocess.PIPE
        process = await box.start(
            asked["argv"], env, asked.get("cwd") or "/tmp", asked.get("user") or box.asked.get("user"), pipe
        )
        box.note("process-started", f"p{process.pid}")
        stdin = base64.b64decode(asked.get("stdin_base64", ""))
        try:
            async with asyncio.timeout(asked.get("timeout_ms", 5000) / 1000):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            process.kill()
            raise Refused("runtime_error", "the command timed out") from None
        code, cut = process.returncode or 0, len(out) > _MOST or len(err) > _MOST
        out, err = out[:_MOST], err[:_MOST]
        return {"stdout_base64": base64.b64encode(out).decode(), "stderr_base64": base64.b64encode(err).decode(),
                "exit_code": code if code >= 0 else 128 - code, "truncated": cut, "request_id": "r1"}  # fmt: skip

    async def file_write(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        data = base64.b64decode(asked["data_base64"])
        run = {"argv": ["sh", "-c", 'cat >"$1"', "sh", asked["path"]], "env": {}, "timeout_ms": 60_000}
        await self.command_run({**run, "stdin_base64": asked["data_base64"]}, box)
        return {"path": asked["path"], "size": len(data), "request_id": "r1"}

    async def file_read(self, asked: dict[str, Any], box: Box) -> dict[str, Any]:
        run = {"argv": ["cat", asked["path"]], "env": {}, "timeout_ms": 60_000}
        found = await self.command_run(run, box)
        if found["exit_code"]:
            raise Refused("not_found", f"file not found: {asked['path']}")
        size = len(base64.b64decode(found["stdout_base64"]))
        return {"path": asked["path"], "data_base64": found["stdout_base64"], "size": size}


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=False, capture_output=True)


@contextmanager
def running(home: Path) -> Iterator[tuple[A3s, Path]]:
    """The stand-in in a thread of its own; yields it and its program."""
    a3s, loop, socket = A3s(home), asyncio.new_event_loop(), home / "socket"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    binary = home / "a3s-box"
    binary.write_text(_SCRIPT.format(python=sys.executable, socket=str(socket)))
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)

    async def begin() -> asyncio.Server:
        return await asyncio.start_unix_server(a3s.serve, str(socket), limit=1 << 26)

    async def end(server: asyncio.Server) -> None:
        server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
    try:
        yield a3s, binary
    finally:
        a3s.end()
        asyncio.run_coroutine_threadsafe(end(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        shutil.rmtree(home, ignore_errors=True)
