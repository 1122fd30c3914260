#!/usr/bin/python3.11 -SE
"""A stand-in for OpenSandbox's execd, whose image cannot be had here: the calls that the console makes, as its source
has them (components/execd, pkg/web and pkg/runtime). It runs inside a sandbox, on the standard library.
"""

import base64
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

RUNNING = {}
INTERRUPTED = set()
LONGEST = 1 << 20  # a longer line is sent in pieces: as one it would fill the sandbox's memory
PTYS = {}


def now():
    return int(time.time() * 1000)


def spent():
    """Seconds of CPU of every process here."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            ticks += sum(map(int, file.read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def measured():
    before, count = spent(), os.cpu_count()
    time.sleep(0.2)
    used = 100 * (spent() - before) / 0.2 / count
    pages = sum(int(one.read_text().split()[1]) for one in Path("/proc").glob("[0-9]*/statm"))
    return {"cpu_count": count, "cpu_used_pct": used, "mem_total_mib": 256, "mem_used_mib": pages * 4096 / 2**20,
            "timestamp": now()}  # fmt: skip


class Pty:
    """A shell that lives on without a client; what it wrote is kept for the next one."""

    def __init__(self, cwd, command):
        self.cwd, self.command = cwd or None, command
        self.pid = self.fd = None
        self.seen, self.code, self.lock = b"", None, threading.Lock()
        self.client = None
        self.child = None

    def start_pipe(self):
        """Three pipes instead of a terminal."""
        self.child = subprocess.Popen(
            ["sh", "-c", self.command], cwd=self.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.pid, self.fd = self.child.pid, self.child.stdin.fileno()
        pumps = [threading.Thread(target=self.pump_pipe, args=(pipe, kind), daemon=True)
                 for pipe, kind in ((self.child.stdout, b"\x01"), (self.child.stderr, b"\x02"))]  # fmt: skip
        for one in pumps:
            one.start()
        threading.Thread(target=self.end_pipe, args=(pumps,), daemon=True).start()

    def pump_pipe(self, pipe, kind):
        while data := os.read(pipe.fileno(), 32768):
            with self.lock:
                if self.client:
                    self.client(kind + data, 2)

    def end_pipe(self, pumps):
        for one in pumps:
            one.join()
        self.tell(self.child.wait())

    def tell(self, code):
        self.code = code
        with self.lock:
            if self.client:
                self.client(json.dumps({"type": "exit", "exit_code": code}).encode(), 1)
                self.client(struct.pack("!H", 1000), 8)

    def start(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(self.cwd or "/")
            words = ["sh", "-c", self.command] if self.command else ["sh"]
            os.execvpe("sh", words, {**os.environ, "TERM": "xterm-256color"})
        threading.Thread(target=self.pump, daemon=True).start()

    def pump(self):
        while True:
            try:
                data = os.read(self.fd, 32768)
            except OSError:
                break
            if not data:
                break
            with self.lock:
                self.seen += data
                if self.client:
                    self.client(b"\x01" + data, 2)
        _, status = os.waitpid(self.pid, 0)
        self.tell(os.waitstatus_to_exitcode(status))


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # as Go's; with Python's 5 the server finds connections of twenty commands at once dropped


class Execd(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def parts(self):
        url = urlsplit(self.path)
        return url.path, {key: value[0] for key, value in parse_qs(url.query).items()}

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path, query = self.parts()
        if path == "/ping":
            return self.answer({})
        if path == "/metrics":
            return self.answer(measured())
        if found := re.fullmatch("/pty/([^/]+)/ws", path):
            return self.terminal(found[1], int(query.get("since", 0)), query.get("pty") == "0")
        if path.startswith("/pty/") and path[5:] in PTYS:
            one = PTYS[path[5:]]
            return self.answer({"session_id": path[5:], "running": one.code is None, "output_offset": len(one.seen)})
        return self.answer({"code": "NOT_FOUND", "message": "no such path"}, 404)

    def do_POST(self):
        path, _ = self.parts()
        if path == "/command":
            return self.run_command(json.loads(self.body()))
        if path == "/pty":
            asked, id_ = json.loads(self.body() or b"{}"), uuid.uuid4().hex
            PTYS[id_] = Pty(asked.get("cwd"), asked.get("command"))
            return self.answer({"session_id": id_}, 201)
        return self.answer({"code": "NOT_FOUND", "message": "no such path"}, 404)

    def do_DELETE(self):
        path, query = self.parts()
        if path == "/command" and query.get("id") in RUNNING:
            INTERRUPTED.add(query["id"])
            os.killpg(RUNNING[query["id"]].pid, signal.SIGKILL)
            return self.answer({})
        if path.startswith("/pty/") and path[5:] in PTYS:
            one = PTYS.pop(path[5:])
            if one.pid and one.code is None:
                os.killpg(one.pid, signal.SIGKILL)
            return self.answer({})
        return self.answer({"code": "NOT_FOUND", "message": "no such command"}, 404)

    def event(self, **event):
        data = json.dumps({"timestamp": now(), **event}).encode() + b"\n\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def run_command(self, asked):
        words = asked.get("argv") or ["bash" if Path("/bin/bash").exists() else "sh", "-c", asked["command"]]
        env = {**os.environ, **(asked.get("envs") or {})}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                child = subprocess.Popen(
                    words, cwd=asked.get("cwd") or None, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True, user=asked.get("uid"), group=asked.get("gid"),
                )  # fmt: skip
            except OSError as error:
                child, code = None, 126 if isinstance(error, PermissionError) else 127
                text = f"{words[0]}: {error.strerror}"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            id_ = uuid.uuid4().hex
            self.event(type="init", text=id_)
            if child is None:
                self.event(type="error", error={"ename": "CommandExecError", "evalue": str(code), "traceback": [text]})
            else:
                RUNNING[id_] = child
                self.follow(id_, child, {"stdout": out, "stderr": err}, asked.get("timeout"))
                RUNNING.pop(id_)
        self.wfile.write(b"0\r\n\r\n")

    def follow(self, id_, child, files, timeout_ms):
        """Read the files that the command writes to: its output is stored before it is sent."""
        began, places, rest = time.time(), dict.fromkeys(files, 0), {name: bytearray() for name in files}
        ended = False
        while not ended:
            if timeout_ms and time.time() - began > timeout_ms / 1000:
                os.killpg(child.pid, signal.SIGKILL)
            ended = child.poll() is not None  # before the reads, so that the last of it is read
            for name, file in files.items():
                while id_ not in INTERRUPTED and (data := os.pread(file.fileno(), 65536, places[name])):
                    places[name] += len(data)
                    self.lines(name, rest[name], data)
            time.sleep(0 if ended else 0.02)
        for name, last in rest.items():
            if last and id_ not in INTERRUPTED:
                self.event(type=name, text=last.decode("utf-8", "replace"))
        code = child.wait()
        if code == 0:
            self.event(type="execution_complete", execution_time=int((time.time() - began) * 1000))
        else:
            value = str(code if code > 0 else 128 - code)
            self.event(type="error", error={"ename": "CommandExecError", "evalue": value, "traceback": []})

    def lines(self, name, rest, data):
        rest += data
        if len(rest) > LONGEST and b"\n" not in data:
            self.event(type=name, text=rest.decode("utf-8", "replace"))
            rest.clear()
        if b"\n" in data:
            *whole, last = bytes(rest).split(b"\n")
            rest[:] = last
            for line in whole:
                self.event(type=name, text=line.decode("utf-8", "replace") or "\n")

    def terminal(self, id_, since, pipe):
        one = PTYS.get(id_)
        if one is None:
            return self.answer({"code": "CONTEXT_NOT_FOUND", "message": "pty session not found"}, 404)
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        if one.pid is None and pipe:
            one.client = self.frame
            one.start_pipe()
        elif one.pid is None:
            one.start()
        with one.lock:
            if one.seen[since:]:
                self.frame(b"\x03" + struct.pack("!q", since) + one.seen[since:], 2)
            self.frame(json.dumps({"type": "connected", "session_id": id_, "mode": "pty"}).encode(), 1)
            one.client = self.frame
        try:
            while (got := self.read_frame()) is not None:
                self.took(one, *got)
        finally:
            one.client = None

    def took(self, one, kind, data):
        if kind == 2 and data[:1] == b"\x00":
            data = data[1:]
            while data:
                try:
                    data = data[os.write(one.fd, data) :]
                except OSError:  # it reads no more
                    return
        elif kind == 1:
            frame = json.loads(data)
            if frame["type"] == "resize":
                size = struct.pack("HHHH", frame["rows"], frame["cols"], 0, 0)
                fcntl.ioctl(one.fd, termios.TIOCSWINSZ, size)

    def frame(self, data, kind):
        head = bytes([0x80 | kind])
        if len(data) < 126:
            head += bytes([len(data)])
        elif len(data) < 65536:
            head += b"\x7e" + struct.pack("!H", len(data))
        else:
            head += b"\x7f" + struct.pack("!Q", len(data))
        try:
            self.wfile.write(head + data)
            self.wfile.flush()
        except OSError:
            pass

    def read_frame(self):
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        size = head[1] & 127
        if size == 126:
            size = struct.unpack("!H", self.rfile.read(2))[0]
        elif size == 127:
            size = struct.unpack("!Q", self.rfile.read(8))[0]
        mask, data = self.rfile.read(4), self.rfile.read(size)
        return head[0] & 15, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what is in the background without it
    Server(("0.0.0.0", int(sys.argv[1]) if len(sys.argv) > 1 else 44772), Execd).serve_forever()
