"""The Python API without asyncio: the same names and meanings. Each call returns when it is done.

Every call is carried out by one loop in one thread of its own, so it may come from any thread, also from inside a
running loop, which it holds up meanwhile. A console that is open when the interpreter ends is closed then. After a
``fork`` the child opens its own: what its parent opened is an error there.
"""

from sandbox_console.sync.console import Console, open_console
from sandbox_console.sync.resource import Held
from sandbox_console.sync.sandbox import RunningCommand, SandboxHandle, ShellSession

__all__ = ["Console", "Held", "RunningCommand", "SandboxHandle", "ShellSession", "open_console"]
