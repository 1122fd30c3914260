"""The Python API without asyncio, with the same names and meanings. Each call returns when it is done.

One event loop, in a thread of its own, carries out every call. Calls may thus come from any thread, even from inside a
running loop, which they block meanwhile. Consoles that are open when the interpreter exits are closed. After a
``fork``, the child must open its own console; using one that its parent opened is an error.
"""

from sandbox_console.sync.console import Console, open_console
from sandbox_console.sync.resource import Held
from sandbox_console.sync.sandbox import RunningCommand, SandboxHandle, ShellSession

__all__ = ["Console", "Held", "RunningCommand", "SandboxHandle", "ShellSession", "open_console"]
