"""``serve`` as a process: it says where it listens, and ends when it is told to."""

from __future__ import annotations

import json
import signal

import pytest
from tests.cli.conftest import CONFIG, Cli


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_and_ends(cli: Cli, signum: signal.Signals) -> None:
    process = cli.start("serve", "--read-only")
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"http://127.0.0.1:")
    process.send_signal(signum)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


@pytest.mark.parametrize("text", ["backend = 'dokcer'", "[policy]\nread_onyl = true", "[backends.bubblewrap]\ntmp = 1"])
def test_serve_and_create_refuse_a_configuration_that_no_session_could_begin_with(cli: Cli, text: str) -> None:
    (cli.home / "config.toml").write_text(f"{text}\n")
    for words in (("serve",), ("create", "x", "--image", "host")):
        done = cli(*words, "--json")
        told = json.loads(done.stderr)
        assert (done.returncode, told["code"]) == (2, "config"), done
        assert told["hint"]
    (cli.home / "config.toml").write_text(CONFIG)


def test_serve_names_what_is_wrong_with_its_address(cli: Cli) -> None:
    done = cli("serve", "--host", "192.0.2.1", "--insecure-no-tls", "--json")
    told = json.loads(done.stderr)
    assert (done.returncode, told["hint"]) == (7, "name an address of this machine: ip addr")


def test_serve_beyond_this_machine_wants_tls(cli: Cli) -> None:
    done = cli("serve", "--host", "0.0.0.0", "--json")
    assert done.returncode == 2
    assert b"TLS" in done.stderr
