"""The clients of a sandbox's socket, and their requests."""

import os
import socket

from . import wire

TYPE_CHECKING = False  # the typing module costs 1 MB
if TYPE_CHECKING:
    from typing import Protocol

    from .cgroup import Group
    from .loop import Loop

    class Commands(Protocol):
        """What starts a command."""

        def start(self, conn: socket.socket, fds: list[int]) -> None: ...

    class Keeper(Protocol):
        """What the clients need from the supervisor."""

        loop: Loop
        group: Group

        @property
        def commands(self) -> Commands: ...

        def lend(self, conn: socket.socket) -> None: ...
        def stop(self, conn: socket.socket, grace: float) -> None: ...
        def signal(self, conn: socket.socket, number: int) -> None: ...
        def freeze(self, frozen: bool) -> None: ...
        def door(self, conn: socket.socket) -> None: ...
        def publish(self, published: bool) -> None: ...


_SOCKET = "sock"
_BACKLOG = 128


class Requests:
    """The socket in the sandbox's folder. A connection carries one request; a command keeps its own."""

    def __init__(self, keeper: "Keeper") -> None:
        self._keeper = keeper
        self.close()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(_SOCKET)  # relative to the working folder, as an address is limited to 107 bytes
        server.listen(_BACKLOG)
        server.setblocking(False)
        keeper.loop.on(server.fileno(), lambda: self._accept(server))
        self._server = server

    @staticmethod
    def close() -> None:
        """Accept no more requests."""
        try:
            os.unlink(_SOCKET)
        except FileNotFoundError:
            pass

    def drop(self, conn: socket.socket) -> None:
        """Close a connection."""
        self._keeper.loop.off(conn.fileno())
        conn.close()

    def _accept(self, server: socket.socket) -> None:
        try:
            conn, _ = server.accept()
        except BlockingIOError:
            return
        conn.setblocking(False)
        self._keeper.loop.on(conn.fileno(), lambda: self._asked_by(conn))

    def _asked_by(self, conn: socket.socket) -> None:
        message, fds = wire.receive(conn)
        if message is None:
            self.drop(conn)
            return
        try:
            self._serve(conn, message, fds)
        except Exception as error:  # noqa: BLE001 - whatever was sent, the sandbox lives on
            wire.send(conn, {"error": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _serve(self, conn: socket.socket, message: dict[str, object], fds: list[int]) -> None:
        match message.get("op"):
            case "exec":
                self._keeper.commands.start(conn, fds)
            case "spaces":
                self._keeper.lend(conn)
            case "stop":
                self._keeper.stop(conn, float(str(message["grace"])))
            case "signal":
                self._keeper.signal(conn, int(str(message["signal"])))
            case "freeze":
                self._keeper.freeze(bool(message["frozen"]))
                wire.send(conn, {"ok": True})
            case "ports":
                self._keeper.publish(bool(message["open"]))
                wire.send(conn, {"ok": True})
            case "door":
                self._keeper.door(conn)
            case "limits":
                self._keeper.group.limit(**message["limits"])  # type: ignore[arg-type]
                wire.send(conn, {"ok": True})
            case _:
                wire.send(conn, {"error": f"unknown request {message.get('op')!r}"})
