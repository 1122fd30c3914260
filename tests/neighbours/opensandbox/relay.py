"""Forwards a port of this machine to one in the network namespace of a process: ``relay.py PID PORT`` prints its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys

_CLONE_NEWNET = 0x40000000  # linux/sched.h


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(listening: socket.socket, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    async with await asyncio.start_server(serve, sock=listening) as server:
        await server.serve_forever()


if __name__ == "__main__":
    mine = socket.create_server(("127.0.0.1", 0))  # in this namespace; what is opened later is in the other one
    namespace = os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    sys.stdout.write(f"{mine.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(main(mine, int(sys.argv[2])))
