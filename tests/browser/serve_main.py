"""Serves one command: `serve_main.py OPTIONS-AS-JSON COMMAND...`."""

import json
import sys
from pathlib import Path

from sandbox_console.errors import ConsoleError
from sandbox_console.web import ServeOptions, serve

options = json.loads(sys.argv[1])
for name in ("token_file", "cert", "key", "socket"):
    if name in options:
        options[name] = Path(options[name])
try:
    sys.exit(serve(ServeOptions(command=sys.argv[2:], **options)))
except ConsoleError as error:
    sys.stderr.write(f"{error.message}\n")
    sys.exit(error.exit_code)
