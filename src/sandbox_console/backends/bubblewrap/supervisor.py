"""The program of one sandbox's supervisor, run as ``python -I -S -X utf8 supervisor.py ID``.

It reads its order as JSON from stdin, leaves the console's session, and answers on stdout with one JSON object when the
sandbox runs or has failed to start. It uses the standard library only, so that it stays small.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs 1 MB here
    from supervise.main import main  # type: ignore[import-not-found]

    main()
