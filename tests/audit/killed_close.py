"""A console that adds a row to a log and dies before it has run STEP lines of its close.

python -m tests.audit.killed_close LOG STEP
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.audit.conftest import SMALL

from sandbox_console.audit import (
    checkpoints,
    end_proof,
    head,
    open_segment,
    page_digest_writer,
    page_digests,
    spill,
    store,
)
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.rows import Draft
from sandbox_console.audit.sessions import Session
from sandbox_console.audit.urgent_rows import UrgentRows
from sandbox_console.model.audit import Kind

OF_THE_CLOSE = {
    one.__file__ for one in (checkpoints, end_proof, head, open_segment, page_digest_writer, page_digests, spill, store)
}


def main(path: Path, left: int) -> None:
    layout = Layout(path)
    session = Session(layout.sessions)
    writer = store.Store(layout, SMALL, "test", session.id, UrgentRows(layout.urgent(session.id), Keys(layout.key)))
    writer.append(Draft(Kind.ATTEMPT, "test", session.id, "exec", "fake", "box"))

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename not in OF_THE_CLOSE:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    writer.close()
    sys.settrace(None)
    session.close(clean=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
