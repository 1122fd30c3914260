"""``forward`` as a process on a real sandbox: it says where, serves, ends by a signal or with the sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_docs import keys
from tests.support.require import requires

pytestmark = requires("bubblewrap")

SERVE = "cd /tmp; echo hello > index.html; exec python3 -m http.server 8000 --bind 127.0.0.1"


@pytest.fixture
def web(cli: Cli) -> str:
    cli.ok("create", "web", "--image", "host", "--", "sh", "-c", SERVE)
    probe = "import socket; socket.create_connection(('127.0.0.1', 8000), 1)"
    cli.until(lambda: cli("exec", "web", "--", "python3", "-c", probe).returncode == 0, "it does not serve")
    return "web"


def line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    return process.stdout.readline()


def test_it_says_where_serves_and_ends_by_a_signal_with_its_outcome_on_record(cli: Cli, web: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = cli.start("forward", web, "8000", "9")
        places = [line(process).decode().split(" -> ") for _ in range(2)]
        assert [told for _, told in places] == ["web:8000\n", "web:9\n"]
        assert urllib.request.urlopen(f"http://{places[0][0]}/", timeout=30).read() == b"hello\n"
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{places[1][0]}/", timeout=30)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 128 + number
        assert b"web: nothing answered at port 9\n" in err
        assert f"{places[0][0]}: 1 connection,".encode() in err
    rows = [row for row in cli.json("audit", "ls") if row["action"] == "forward"]
    assert [row["outcome"] for row in rows] == ["ok"] * 4
    [shown] = cli.json("audit", "show", str(rows[-1]["id"]))
    assert shown["end"]["body"]["connections"] == 1


def test_its_json_and_its_end_with_the_sandbox(cli: Cli, web: str) -> None:
    process = cli.start("forward", web, "8000", "--json")
    told = json.loads(line(process))
    assert (told.keys(), told["name"], told["port"]) == (keys("forward"), "web", 8000)
    assert urllib.request.urlopen(f"http://{told['place']}/", timeout=30).read() == b"hello\n"
    port = told["place"].rpartition(":")[2]
    assert cli("forward", web, f"{port}:8000").returncode == 7
    cli.ok("rm", web, "--force")
    _, err = process.communicate(timeout=30)
    assert (process.returncode, json.loads(err)["message"]) == (7, "web was removed")


def test_wrong_words_are_told(cli: Cli, web: str) -> None:
    for words, code in ((("forward", web, "no"), 2), (("forward", web, "70000"), 2), (("forward", "nobody", "80"), 3),
                        (("forward", web, "0.0.0.0:0:80"), 2), (("forward", web, "0.0.0.0::80"), 4),
                        (("--read-only", "forward", web, "80"), 4)):  # fmt: skip
        assert cli(*words).returncode == code, words
