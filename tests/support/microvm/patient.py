"""In the machine: the console with more patience. Emulated, an answer takes longer than a backend is given."""

from __future__ import annotations

import sys

from sandbox_console.__main__ import main
from sandbox_console.backends.docker import connection
from sandbox_console.service.reads import fleet

PATIENCE_S = 300.0

connection.PROBE_S = fleet.ANSWER_S = PATIENCE_S
if "serve" in sys.argv:
    from sandbox_console.web import options, process

    process.START_S = PATIENCE_S
    options.console_command = lambda **_: [sys.executable, "-P", __file__]  # its app has to be as patient

if "proxy" in sys.argv:
    from sandbox_console.servers.ssh import server

    server.LOGIN_S = PATIENCE_S

if __name__ == "__main__":
    sys.exit(main())
