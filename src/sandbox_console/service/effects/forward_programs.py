"""Chooses a program of the image that connects to a port inside the sandbox, with stdin and stdout as the stream.

Those that handle the two directions of a connection best come first (tried with the programs of Debian 12). BusyBox's
nc and Python pass on that the client has stopped writing, and end when the server does. bash cannot do the first, socat
waits a while before the second, and OpenBSD's nc does not notice the second until the client is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_console.backends.base import Backend
from sandbox_console.errors import TimedOut, Unsupported
from sandbox_console.model.action import Exec, Forward, Permit
from sandbox_console.model.log import Stream
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.effects.process import run_to_end
from sandbox_console.service.gate.operation import ExecIO

_LOOK_TIMEOUT_S = 20.0

_LOOK = """
has() { command -v "$1" >/dev/null 2>&1; }
case "$(nc --help 2>&1 </dev/null)" in *BusyBox*) echo nc; exit;; esac
case "$(busybox nc --help 2>&1 </dev/null)" in *BusyBox*) echo busybox; exit;; esac
if has python3 && python3 -I -S -c "" </dev/null >/dev/null 2>&1; then echo python3
elif has bash && has cat; then echo bash
elif has socat; then echo socat
elif has nc; then case "$(nc -h 2>&1 </dev/null)" in *-N*) echo nc-N;; *) echo nc-other;; esac
fi
"""

# Find listeners in the kernel's tables, where listening sockets come first. IPv6 is tried if only IPv6 can answer and
# the sandbox has ::1. $1 is the port, $2 the port as the tables write it.
_ADDRESS = """
listens() {
    while read -r n l r s x; do
        case $s:$l in st:*) ;; 0A:*:"$2") return 0;; 0A:*) ;; *) return 1;; esac
    done <"$1"
    return 1
} 2>/dev/null
h=127.0.0.1
if ! listens /proc/net/tcp "$2" && listens /proc/net/tcp6 "$2"; then
    while read -r a x; do case $a in 00000000000000000000000000000001) h=::1;; esac; done </proc/net/if_inet6
fi 2>/dev/null
"""

_PYTHON = """
import os, socket, sys, _thread
def up():
    try:
        for part in iter(lambda: os.read(0, 65536), b""):
            sock.sendall(part)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
try:
    sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _thread.start_new_thread(up, ())
    for part in iter(lambda: sock.recv(65536), b""):
        while part:
            part = part[os.write(1, part):]
except OSError:
    os._exit(1)
os._exit(0)
"""

_BASH = (
    'exec 3<>"/dev/tcp/$1/$2" || exit 1; exec 4<&0; cat <&4 >&3 2>/dev/null & cat <&3 || exit 1; kill $! 2>/dev/null; :'
)

_WAYS: Mapping[str, str] = {
    "nc": 'exec nc "$h" "$1"',
    "busybox": 'exec busybox nc "$h" "$1"',
    "python3": f'exec python3 -I -S -c \'{_PYTHON}\' "$h" "$1"',
    "bash": f'exec bash -c \'{_BASH}\' bash "$h" "$1"',
    "socat": 'case $h in *:*) h="[$h]";; esac; exec socat -t 2 -b 65536 - "TCP:$h:$1"',
    "nc-N": 'exec nc -N "$h" "$1"',
    "nc-other": 'exec nc "$h" "$1"',
}


async def way_in(backend: Backend, permit: Permit, action: Forward, name: str) -> Exec:
    """The command that carries one connection. Raises Unsupported if the sandbox has no program for it."""
    found = await _look(backend, permit, action, name)
    if found not in _WAYS:
        raise Unsupported(
            f"{name} has no program that could connect to a port: no busybox, nc, python3, bash or socat, or no sh",
            hint="a port can also be published when a sandbox is made: create --publish",
        )
    return _command(action, _ADDRESS + _WAYS[found], str(action.port), f"{action.port:04X}")


async def _look(backend: Backend, permit: Permit, action: Forward, name: str) -> str:
    process = await backend.exec(permit, _command(action, _LOOK), ())
    ran = await run_to_end(process, ExecIO(), Redactor(), _LOOK_TIMEOUT_S)
    if ran.timed_out:
        raise TimedOut(f"{name} did not report within {_LOOK_TIMEOUT_S:g} s what could connect to a port in it")
    return ran.out.get(Stream.STDOUT, bytearray()).decode("ascii", "replace").strip()


def _command(action: Forward, script: str, *words: str) -> Exec:
    return Exec(action.ref, ("sh", "-c", script, "sh", *words), workdir="/")
