"""The gateway as a program: ``serve`` runs beside a sandbox, ``ask HOST PORT`` is its client.

Everything is imported before root is given up, as the interpreter may be in a folder that only root can read.
"""

from __future__ import annotations

import argparse
import asyncio
import encodings.idna  # host names need it and punycode later, when they may not be readable
import encodings.punycode  # noqa: F401
import ipaddress
import json
import os
import resource
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from sandbox_console.egress.ask import ask
from sandbox_console.egress.host_addresses import APART, HELD, Host, watch
from sandbox_console.egress.published_ports import Publisher
from sandbox_console.egress.records import Recorder
from sandbox_console.egress.server import Gateway

_RESOLVERS = 8
_FILES = 16384
_FILE_MOST = 16 << 20  # bytes; record files stay far below it, and nothing else may fill the disk
_BIND_S = 20.0


def main(argv: list[str] | None = None) -> int:
    """Run the gateway. The exit code is 0 after SIGTERM."""
    parser = _parser()
    words = parser.parse_args(argv)
    if words.verb == "ask":
        sys.stdout.write(json.dumps(asdict(ask(words.at, words.host, words.port))) + "\n")
        return 0
    if words.fd is None and not (words.listen or words.publish):
        parser.error("--fd, --listen or --publish is needed")
    listener = socket.socket(fileno=words.fd) if words.fd is not None else words.listen and _bound(words.listen)
    published = [_bound(("0.0.0.0", port)) for port, _ in words.publish]  # noqa: S104 - outside it is the engine's to say
    os.chdir(words.folder)
    _confine(words.uid)
    for one in (*published, *filter(None, [listener])):
        one.listen(1024)
    _tell(words)
    asyncio.run(_serve(words, listener, published))
    return 0


def _tell(words: argparse.Namespace, *, held: bool = False) -> None:
    """Report that the gateway is ready, and what is wrong with the network around it."""
    found = [APART] if words.host and Host(words.host).apart else []
    with suppress(OSError):
        Path("records/ready").write_text(" ".join([*found, HELD] if held else found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("gateway", description="an egress gateway for one sandbox")
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve")
    serve.add_argument("--folder", required=True, help="has policy/policy.json, and records/ to write to")
    door = serve.add_mutually_exclusive_group()
    door.add_argument("--fd", type=int, help="a descriptor of a bound socket")
    door.add_argument("--listen", type=_address, help="ADDRESS:PORT")
    serve.add_argument(
        "--publish", type=_published, action="append", default=[], metavar="PORT=ADDRESS:PORT",
        help="relay what comes to a port, but not from the network of --peers",
    )  # fmt: skip
    serve.add_argument(
        "--loopback", type=int, action="append", default=[], metavar="PORT",
        help="a port of --publish that takes what this network's router sends, and nothing else",
    )  # fmt: skip
    serve.add_argument("--uid", type=int, help="become this user once everything is open")
    serve.add_argument("--most", type=int, default=4096, help="connections at once")
    serve.add_argument("--peers", type=ipaddress.ip_network, help="the network whose connections are taken")
    serve.add_argument("--host", type=Path, help="a folder with fib_trie and if_inet6 of the machine around it")
    serve.add_argument("--life", type=int, help="a descriptor that ends when the gateway has to")
    asks = verbs.add_parser("ask")
    asks.add_argument("--at", required=True, type=_address, help="ADDRESS:PORT of the gateway")
    asks.add_argument("host")
    asks.add_argument("port", type=int)
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _published(text: str) -> tuple[int, tuple[str, int]]:
    port, _, target = text.partition("=")
    return int(port), _address(target)


def _bound(address: tuple[str, int]) -> socket.socket:
    """A socket at an address of the gateway. The network may be attached a moment after the container has started."""
    until = time.monotonic() + _BIND_S
    while True:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
            return sock
        except OSError:
            sock.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _confine(uid: int | None) -> None:
    """Give up what a gateway does not need: root, core files, new privileges."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_MOST, _FILE_MOST))
    os.umask(0o022)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


async def _serve(words: argparse.Namespace, listener: socket.socket | None, published: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS, "resolve"))
    both = []
    if listener is not None:
        gateway = Gateway(
            Path("policy"), Recorder(Path("records")), most=words.most, peers=words.peers, host=Host(words.host)
        )
        both.append(gateway.serve(listener))
    if published:
        publisher = Publisher(dict(words.publish), words.peers, words.loopback, used=Path("records/used"))
        both.append(publisher.serve(published))
    if words.peers is not None:
        both.append(watch(words.peers, lambda held: _tell(words, held=held)))
    serving = asyncio.gather(*both)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    if words.life is not None:
        loop.add_reader(words.life, os._exit, 0)  # its keeper is gone: do not wait for threads that resolve names
    with suppress(asyncio.CancelledError):
        await serving
