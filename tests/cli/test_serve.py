"""``serve`` as a process: it says where it listens, and ends when it is told to."""

from __future__ import annotations

import signal

import pytest
from tests.cli.conftest import Cli


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_and_ends(cli: Cli, signum: signal.Signals) -> None:
    process = cli.start("serve", "--read-only")
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"http://127.0.0.1:")
    process.send_signal(signum)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


def test_serve_beyond_this_machine_wants_tls(cli: Cli) -> None:
    done = cli("serve", "--host", "0.0.0.0", "--json")
    assert done.returncode == 2
    assert b"TLS" in done.stderr
