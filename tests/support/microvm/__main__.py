"""``python -m tests.support.microvm``: a machine that stays, for development.

up      boot it                      exec CMD...   run a command in it, with this terminal's stdin
down    end it                       console       what its kernel said
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.microvm.machine import Machine
from tests.support.microvm.parts import MachineError


def main(words: list[str]) -> int:
    machine = Machine(os.environ.get("MACHINE", "dev"))
    try:
        match words:
            case ["up"]:
                machine.up()
            case ["down"]:
                machine.down()
            case ["exec", *argv] if argv:
                return machine.run(argv, cwd=str(Path.cwd()), stdin=not sys.stdin.isatty())
            case ["console"]:
                sys.stdout.write(machine.console())
            case _:
                sys.stderr.write(str(__doc__))
                return 2
    except MachineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
