"""The verbs on real sandboxes, as processes: exit codes, stdin, bytes and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.support.require import requires

pytestmark = requires("bubblewrap")

ODD = bytes(range(256)) * 300


def test_a_sandbox_from_create_to_rm(cli: Cli) -> None:
    assert (
        cli.ok(
            "create", "w", "--image", "host", "--label", "k=v", "--", "sh", "-c", "echo o; echo e >&2; exec sleep 99"
        )
        == b"w\n"
    )
    [listed] = cli.json("ls", "-l", "k=v")
    assert (listed["name"], listed["status"], listed["labels"]) == ("w", "running", {"k": "v"})
    assert cli.json("ls", "-l", "k=other") == []
    cli.until(lambda: cli.ok("logs", "w").count(b"\n") == 2, "no logs")
    assert sorted(cli.ok("logs", "w").splitlines()) == [b"e", b"o"]
    assert cli.ok("stop", "w", "--grace", "1s") == b"w\n"
    assert cli.json("show", "w")[0]["status"] == "exited"
    assert cli.ok("start", "w") == b"w\n"
    assert cli("rm", "w").returncode == 7
    assert cli.ok("rm", "w", "--force") == b"w\n"
    assert cli.json("ls", "--all") == []
    assert cli("show", "w").returncode == 3
    actions = [(row["action"], row["name"], row["outcome"]) for row in reversed(cli.json("audit", "ls"))]
    assert actions == [
        ("create", "w", "ok"),
        ("stop", "w", "ok"),
        ("start", "w", "ok"),
        ("remove", "w", "failed"),
        ("remove", "w", "ok"),
    ]
    assert cli.json("audit", "verify")[0]["ok"] is True


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137), ("nope", 127)],
)
def test_exec_returns_the_commands_own_code(cli: Cli, box: str, command: str, code: int) -> None:
    assert cli("exec", box, "--", "sh", "-c", command).returncode == code


def test_exec_of_what_is_not_there_is_127(cli: Cli, box: str) -> None:
    assert cli("exec", box, "--", "/nope").returncode == 127
    said = cli("exec", box, "--", "sh", "-c", "exit 127").stderr.decode()  # the shell itself was found
    assert said == "box: sh: exit code 127: it, or what it ran, was not found\n"


def test_exec_passes_every_byte_both_ways(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--", "sh", "-c", "cat; printf 'a\\000\\377' >&2", stdin=ODD)
    assert (done.returncode, done.stdout, done.stderr) == (0, ODD, b"a\0\xff")


def test_exec_reads_a_file_and_dev_null(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(ODD)
    for path, expected in ((tmp_path / "in", ODD), (Path("/dev/null"), b"")):
        with path.open("rb") as file:
            assert cli.start("exec", box, "--", "cat", stdin=file).communicate(timeout=30)[0] == expected


def test_exec_of_a_command_that_reads_nothing_does_not_wait_for_stdin(cli: Cli, box: str) -> None:
    reading, writing = os.pipe()
    process = cli.start("exec", box, "--", "true", stdin=reading)
    assert process.wait(20) == 0
    os.close(reading)
    os.close(writing)


def test_exec_json_tells_streams_bytes_and_the_code(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--json", "--", "sh", "-c", "printf '\\303\\251\\n'; printf '\\377' >&2; exit 3")
    *output, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(output, key=str) == [{"stream": "stderr", "data_b64": "/w=="}, {"stream": "stdout", "data": "é\n"}]
    assert (end["exit_code"], end["timed_out"], type(end["audit_id"])) == (3, False, int)
    assert done.returncode == 3


def test_exec_env_and_workdir(cli: Cli, box: str) -> None:
    words = ("exec", box, "--env", "A=b=c", "--workdir", "/tmp", "--", "sh", "-c", 'echo "$A"; pwd')
    assert cli.ok(*words) == b"b=c\n/tmp\n"


def test_exec_times_out_with_124_and_leaves_no_process(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--timeout", "0.5", "--", "sh", "-c", "sleep 77 & sleep 78")
    assert done.returncode == 124
    assert b"timed out after 0.5 s" in done.stderr
    assert b"sleep 7" not in processes(cli, box)
    assert cli.json("audit", "ls", "--limit", "2")[1]["outcome"] == "timed_out"


def processes(cli: Cli, box: str) -> bytes:
    return cli.ok("exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").replace(b"cat /proc", b"")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_exec_its_tree_and_is_on_record(cli: Cli, box: str, signum: signal.Signals) -> None:
    process = cli.start("exec", box, "--", "sh", "-c", "echo up; sleep 77 & sleep 78")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signum)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signum, err
    assert b"Traceback" not in err
    assert cli.json("audit", "ls", "--limit", "1")[0]["outcome"] == "cancelled"
    assert b"sleep 7" not in processes(cli, box)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["exec", "nope", "--", "true"], 125),
        (["exec", "box"], 125),
        (["exec", "box", "--timeout", "x", "--", "true"], 125),
        (["exec", "box", "--env", "A", "--", "true"], 125),
        (["exec", "box", "--read-only", "--", "true"], 125),
        (["shell", "box"], 125),
    ],
)
def test_every_failure_of_our_own_is_125_with_its_code_in_the_json(
    cli: Cli, box: str, words: list[str], code: int
) -> None:
    split = words.index("--") if "--" in words else len(words)
    done = cli(*words[:split], "--json", *words[split:])
    assert done.returncode == code
    assert done.stdout == b""
    error = json.loads(done.stderr)
    assert error["code"] in {"not_found", "usage", "denied"}
    assert error["message"]


def test_exec_into_a_stopped_sandbox_is_a_conflict(cli: Cli, box: str) -> None:
    cli.ok("stop", box, "--grace", "1s")
    done = cli("exec", box, "--json", "--", "true")
    assert (done.returncode, json.loads(done.stderr)["code"]) == (125, "conflict")


def test_a_taken_name_is_exit_7(cli: Cli, box: str) -> None:
    done = cli("create", box, "--image", "host", "--json")
    assert (done.returncode, json.loads(done.stderr)["code"]) == (7, "conflict")


def test_a_name_that_is_not_utf8_is_refused_and_on_record(cli: Cli) -> None:
    name = b"x\xff".decode("utf-8", "surrogateescape")
    done = cli("create", name, "--image", "host", "--json")
    assert (done.returncode, list(json.loads(done.stderr)["problems"])) == (2, ["name"])
    assert cli.json("audit", "ls")[0]["outcome"] == "failed"


def test_exec_passes_words_that_are_not_utf8(cli: Cli, box: str) -> None:
    word = b"\xff\xc3".decode("utf-8", "surrogateescape")
    assert cli.ok("exec", box, "--", "printf", "%s", word) == b"\xff\xc3"
    [shown] = cli.json("audit", "show", "3")
    assert shown["attempt"]["body"]["argv"] == ["printf", "%s", word]


BAD: list[tuple[list[str], str, int]] = [
    (["", "--image", "host"], "name", 2),
    (["x" * 64, "--image", "host"], "name", 2),
    (["a b", "--image", "host"], "name", 2),
    (["n"], "image", 2),
    (["n", "--image", "nope:latest"], "image", 2),
    (["n", "--image", "host", "--memory", "512 apples"], "memory_mib", 2),
    (["n", "--image", "host", "--cpus", "0"], "cpus", 2),
    (["n", "--image", "host", "--cpus", "-1"], "cpus", 2),
    (["n", "--image", "host", "--cpus", "x"], "cpus", 2),
    (["n", "--image", "host", "--cpus", "100000"], "cpus", 2),
    (["n", "--image", "host", "--cpus", "nan"], "cpus", 2),
    (["n", "--image", "host", "--workspace", "/nope/nope"], "workspace", 2),
    (["n", "--image", "host", "--workspace", "/etc/hosts"], "workspace", 2),
    (["n", "--image", "host", "--workspace", "/"], "workspace", 2),
    (["n", "--image", "host", "--egress", "https://a.example"], "egress", 2),
    (["n", "--image", "host", "--egress", "a.example/path"], "egress", 2),
    (["n", "--image", "host", "--egress", "a b"], "egress", 2),
    (["n", "--image", "host", "--egress", "1.2.3.4"], "egress", 2),
    (["n", "--image", "host", "--secret", "NOPE"], "secrets", 2),
    (["n", "--image", "host", "--env", "1A=x"], "env", 2),
    (["n", "--image", "host", "--label", "sandbox-console.x=y"], "labels", 2),
]


@pytest.mark.parametrize(("words", "field", "code"), BAD, ids=[" ".join(words)[-40:] or "empty" for words, *_ in BAD])
def test_bad_input_names_its_field_and_makes_nothing(cli: Cli, words: list[str], field: str, code: int) -> None:
    done = cli("create", *words, "--json")
    error = json.loads(done.stderr)
    assert done.returncode == code
    assert (error["code"], list(error["problems"])) == ("invalid_spec", [field])
    assert cli.json("ls", "--all") == []
    text = cli("create", *words).stderr.decode()
    assert text.startswith(f"error: {field}: ")


def test_all_problems_are_told_at_once(cli: Cli) -> None:
    done = cli("create", "n", "--image", "host", "--memory", "x", "--cpus", "y", "--json")
    assert set(json.loads(done.stderr)["problems"]) == {"memory_mib", "cpus"}


def test_an_unenforceable_wish_is_exit_8_and_named(cli: Cli) -> None:
    done = cli("create", "n", "--image", "host", "--runtime", "runsc", "--json")
    error = json.loads(done.stderr)
    assert (done.returncode, error["code"]) == (8, "unsupported")
    assert "runtime" in error["message"]
    assert error["audit_id"] is not None


def test_a_bad_config_is_exit_2_and_names_the_nearest_key(cli: Cli) -> None:
    (cli.home / "config.toml").write_text("[policy]\nread_onyl = true\n")
    done = cli("ls")
    (cli.home / "config.toml").write_text("")
    assert done.returncode == 2
    assert b"policy.read_onyl" in done.stderr
    assert b"policy.read_only" in done.stderr


def test_an_audit_log_that_cannot_be_written_stops_changes_not_reads(cli: Cli, box: str) -> None:
    folder = cli.home / "state" / "audit"
    kept = folder.with_name("kept")
    folder.rename(kept)
    folder.write_text("in the way")
    try:
        done = cli("stop", box, "--json")
        assert (done.returncode, json.loads(done.stderr)["code"]) == (6, "audit_unavailable")
        assert cli.json("ls")[0]["status"] == "running"
        assert cli("doctor").returncode == 1
    finally:
        folder.unlink()
        kept.rename(folder)


def test_an_unknown_backend_is_exit_2(cli: Cli) -> None:
    assert cli("ls", "--backend", "nope").returncode == 2
    assert cli("create", "n", "--image", "host", "--backend", "nope").returncode == 2


def test_a_dead_backend_is_named_and_asked_for_is_exit_5(cli: Cli) -> None:
    (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    cli.env["DOCKER_HOST"] = "unix:///nope.sock"
    try:
        for words, code in ((("ls",), 0), (("ls", "--backend", "docker"), 5)):
            done = cli(*words)
            assert done.returncode == code
            assert b"docker" in done.stderr
            assert b"/nope.sock" in done.stderr
            told = json.loads(cli(*words, "--json").stderr)
            assert told["code"] == "unreachable"
    finally:
        (cli.home / "config.toml").write_text(CONFIG)


def test_several_names_get_one_result_each_and_the_first_failures_code(cli: Cli, box: str) -> None:
    done = cli("stop", "nope", box, "bubblewrap/local/nope", "--grace", "1s", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["name"], row["ok"]) for row in rows] == [
        ("nope", False),
        (box, True),
        ("bubblewrap/local/nope", False),
    ]
    assert done.returncode == 3
    assert [json.loads(line)["name"] for line in done.stderr.splitlines()] == ["nope", "bubblewrap/local/nope"]


def test_a_dry_run_tells_and_does_nothing(cli: Cli) -> None:
    told = json.loads(cli.ok("create", "n", "--image", "host", "--env", "A=b", "--dry-run", "--json", "--", "true"))
    assert told["spec"] == {"name": "n", "image": "host", "command": ["true"], "env": {"A": "b"}}
    assert told["problems"] == {}
    assert "runtime" in told["missing"]
    assert cli("create", "a b", "--image", "host", "--dry-run").returncode == 2
    assert cli("create", "n", "--image", "host", "--runtime", "runsc", "--dry-run").returncode == 8
    assert cli("create", "n", "--image", "host", "--dry-run", "--read-only").returncode == 4
    assert cli.json("ls", "--all") == []
    assert cli.json("audit", "ls") == []


def test_a_spec_file_round_trips(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(
        'name = "f"\nimage = "host"\ncommand = ["sh", "-c", "exec sleep 99"]\n[labels]\na = "1"\n[env]\nX = "y"\n'
    )
    cli.ok("create", "-f", str(tmp_path / "spec.toml"), "--label", "b=2", "--env", "X=z")
    shown = cli.ok("show", "f", "--toml")
    assert cli.json("show", "f")[0]["spec"]["labels"] == {"a": "1", "b": "2"}
    assert cli.ok("exec", "f", "--", "sh", "-c", "echo $X") == b"z\n"
    cli.ok("rm", "--force", "f")
    cli.ok("create", "-f", "-", stdin=shown)
    assert cli.ok("show", "f", "--toml") == shown
    cli.ok("create", "g", "-f", "-", stdin=json.dumps({"image": "host"}).encode())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"name = ", "neither TOML nor JSON"),
        (b'{"nmae": "x"}', "nmae: unknown field; did you mean 'name'?"),
        (b"cpus = 'x'\nname = 'n'", "cpus"),
    ],
)
def test_a_bad_spec_file_says_what_is_wrong(cli: Cli, text: bytes, part: str) -> None:
    done = cli("create", "-f", "-", stdin=text)
    assert done.returncode == 2
    assert part in done.stderr.decode()
    assert cli("create", "-f", "/nope.toml").returncode == 2


def test_an_update_shows_its_plan_then_does_it(cli: Cli, box: str) -> None:
    [plan] = cli.json("update", box, "--env", "A=1", "--label", "k=v", "--dry-run")
    assert {change["field"]: change["how"] for change in plan["changes"]}["env"] == "recreate"
    assert "k" not in cli.json("show", box)[0]["labels"]
    [done] = cli.json("update", box, "--env", "A=1", "--label", "k=v")
    assert done["how"] == "recreate"
    assert cli.ok("exec", box, "--", "sh", "-c", "echo $A") == b"1\n"
    cli.ok("update", box, "--unset", "env")
    assert "env" not in cli.json("show", box)[0]["spec"]
    assert cli("update", box, "--unset", "nope").returncode == 2
    assert b"nothing differs" in cli("update", box).stderr


def test_an_unsupported_update_changes_nothing(cli: Cli, box: str) -> None:
    before = cli.json("show", box)[0]["ref"]
    assert cli("update", box, "--runtime", "runsc").returncode == 8
    assert cli.json("show", box)[0]["ref"] == before


def test_logs_bytes_times_grep_and_streams(cli: Cli) -> None:
    script = "printf 'one\\ntwo \\377\\000\\n'; sleep 0.3; printf 'err one\\n' >&2; exec sleep 99"
    cli.ok("create", "l", "--image", "host", "--", "sh", "-c", script)
    cli.until(lambda: b"err one" in cli.ok("logs", "l"), "no logs")
    assert cli.ok("logs", "l") == b"one\ntwo \xff\0\nerr one\n"
    assert cli.ok("logs", "l", "--tail", "1") == b"err one\n"
    assert cli.ok("logs", "l", "--grep", "^one|err") == b"one\nerr one\n"
    assert cli.ok("logs", "l", "--stream", "stderr") == b"err one\n"
    assert cli.ok("logs", "l", "--until", "1h") == b""
    assert cli.ok("logs", "l", "--since", "1h") == b"one\ntwo \xff\0\nerr one\n"
    assert cli.ok("logs", "l", "--since", "2099-01-01T00:00:00Z") == b""
    stamped = cli.ok("logs", "l", "--timestamps").splitlines()
    assert stamped == sorted(stamped)
    assert stamped[0].endswith(b"Z one")
    rows = cli.json("logs", "l")
    assert [row["stream"] for row in rows] == ["stdout", "stdout", "stderr"]
    assert "data_b64" in rows[1]
    for bad in (("--since", "yesterday"), ("--tail", "x"), ("--tail", "-1"), ("--grep", "(")):
        assert cli("logs", "l", *bad).returncode == 2


def test_logs_of_several_are_merged_by_time_with_their_names(cli: Cli) -> None:
    for name in ("a", "bb"):
        cli.ok(
            "create", name, "--image", "host", "--", "sh", "-c", f"echo {name}1; sleep 0.4; echo {name}2; exec sleep 99"
        )
    cli.until(lambda: len(cli.ok("logs", "a", "bb").splitlines()) == 4, "no logs")
    lines = cli.ok("logs", "a", "bb").decode().splitlines()
    assert sorted(lines) == ["a  | a1", "a  | a2", "bb | bb1", "bb | bb2"]
    times = [row["at_ns"] for row in cli.json("logs", "a", "bb")]
    assert times == sorted(times)
    process = cli.start("logs", "-f", "a", "bb")
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(4)} == {f"{line}\n".encode() for line in lines}
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


def test_following_ends_when_the_sandbox_does(cli: Cli) -> None:
    cli.ok("create", "e", "--image", "host", "--", "sh", "-c", "echo one; sleep 0.5; echo two; exit 4")
    process = cli.start("logs", "-f", "e")
    assert process.communicate(timeout=20)[0] == b"one\ntwo\n"
    assert process.returncode == 0
    assert cli.json("show", "e")[0]["exit"]["code"] == 4


def test_a_reader_that_goes_ends_it_quietly(cli: Cli) -> None:
    cli.ok("create", "y", "--image", "host", "--", "sh", "-c", "yes | head -100000; exec sleep 99")
    for words in (("logs", "-f", "y"), ("exec", "y", "--", "yes")):
        process = cli.start(*words)
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(20) == 141, words
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("words", [("logs", "-f", "box"), ("ls", "--watch"), ("stats", "--watch")])
def test_who_follows_for_nobody_ends(cli: Cli, box: str, words: tuple[str, ...]) -> None:
    process = cli.start(*words)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 141


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_much_output_into_a_slow_pipe_arrives_whole(cli: Cli, box: str, unbuffered: str) -> None:
    cli.env["PYTHONUNBUFFERED"] = unbuffered
    process = cli.start("exec", box, "--", "sh", "-c", "yes | head -500000")
    assert process.stdout is not None
    time.sleep(0.5)  # the reader is slow on purpose: the pipe must be full for a while
    assert process.stdout.read() == b"y\n" * 500_000
    assert process.wait(20) == 0


def test_watch_streams_what_changes(cli: Cli, box: str) -> None:
    process = cli.start("ls", "--watch", "--json")
    assert process.stdout is not None
    stdout = process.stdout

    def seen(wanted: Callable[[dict[str, object]], bool]) -> None:
        while not wanted(json.loads(stdout.readline())):
            pass

    seen(lambda row: row["event"] == "sandbox" and row["name"] == box and row["status"] == "running")
    cli.ok("stop", box, "--grace", "1s")
    seen(lambda row: row["event"] == "sandbox" and row["status"] == "exited")
    cli.ok("rm", box)
    seen(lambda row: row["event"] == "removed" and row["name"] == box)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")


def test_stats_of_what_runs(cli: Cli, box: str) -> None:
    [row] = cli.json("stats")
    assert row["name"] == box
    assert row["memory_bytes"] > 0
    assert cli.ok("stats", box).splitlines()[0].startswith(b"NAME")
    assert cli("stats", "nope").returncode == 3
    process = cli.start("stats", "--watch", box)
    assert process.stdout is not None
    assert process.stdout.readline()
    cli.ok("rm", "--force", box)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.decode()) == (0, f"{box} is no longer running\n")


def test_hostile_output_is_cleaned_for_a_terminal_and_kept_for_a_pipe(cli: Cli, box: str) -> None:
    words = ("exec", box, "--", "sh", "-c", "printf '\\033]52;c;AAAA\\007\\033[31mred\\033[0m\\n'")
    assert cli.ok(*words) == b"\x1b]52;c;AAAA\x07\x1b[31mred\x1b[0m\n"
    from tests.cli.terminal import Terminal

    with Terminal(cli, *words) as terminal:
        shown = terminal.read_to_end()
    assert b"\x1b]52" not in shown
    assert "␛]52;c;AAAA␇".encode() in shown
    assert b"\x1b[31mred" in shown


def test_audit_shows_one_action(cli: Cli, box: str) -> None:
    [shown] = cli.json("audit", "show", "1")
    assert (shown["attempt"]["action"], shown["end"]["outcome"]) == ("create", "ok")
    assert cli.ok("audit", "show", "1").startswith(b"attempt 1  ")
    assert cli("audit", "show", "9999").returncode == 3
    assert cli("audit", "show", "x").returncode == 2
    assert cli("audit", "ls", "--limit", "0").returncode == 2


def test_a_changed_row_is_found(cli: Cli, box: str) -> None:
    import sqlite3

    with sqlite3.connect(cli.home / "state" / "audit" / "audit.db") as db:
        db.execute("PRAGMA writable_schema = ON")
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE record SET actor = 'user:mallory' WHERE seq = 1")
    db.close()
    done = cli("audit", "verify", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["first_bad"]) == (1, False, 1)
    assert told["cannot_know"]


def test_secrets_are_named_checked_and_never_shown(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good").write_text("a-very-secret-value")
    with (cli.home / "config.toml").open("a") as file:
        file.write(f'[secrets.GOOD]\nfrom = "file:{tmp_path}/good"\n[secrets.BAD]\nfrom = "env:SC_NOT_SET"\n')
    assert [row["name"] for row in cli.json("secrets", "ls")] == ["BAD", "GOOD"]
    done = cli("secrets", "check")
    assert done.returncode == 1
    assert b"SC_NOT_SET" in done.stderr
    assert b"a-very-secret-value" not in done.stdout + done.stderr
    cli.ok("create", "s", "--image", "host", "--secret", "GOOD", "--", "sleep", "99")
    assert cli.ok("exec", "s", "--", "sh", "-c", "echo $GOOD").strip() != b"a-very-secret-value"
    assert cli.ok("exec", "s", "--", "sh", "-c", 'echo "${#GOOD}"') == b"19\n"
    assert b"a-very-secret-value" not in cli.ok("show", "s") + cli.ok("show", "s", "--json") + cli.ok(
        "audit", "ls", "--json"
    )


def test_doctor_names_what_works_and_what_does_not(cli: Cli) -> None:
    rows = cli.json("doctor")
    found = {row["what"]: row["state"] for row in rows}
    assert found["bubblewrap"] == "ok"
    assert found["audit log"] == found["audit chain"] == found["config"] == "ok"
    assert any(row["what"] == "bubblewrap lacks" for row in rows)
    assert cli.ok("doctor").startswith(b"ok       versions")


def test_kill_by_signal_name(cli: Cli, box: str) -> None:
    assert cli("kill", box, "--signal", "NOPE").returncode == 2
    assert cli.ok("kill", box) == b"box\n"
    assert cli.json("show", box)[0]["exit"]["signal"] == 9


def test_pause_and_resume(cli: Cli, box: str) -> None:
    if "pause" in cli.json("create", "n", "--image", "host", "--dry-run")[0]["missing"]:
        assert cli("pause", box).returncode == 8
        return
    cli.ok("pause", box)
    assert cli.json("show", box)[0]["status"] == "paused"
    cli.ok("resume", box)
    assert cli.json("show", box)[0]["status"] == "running"


def test_an_unexpected_failure_is_one_line_and_a_file_without_values(cli: Cli) -> None:
    code = (
        "import sys\nfrom sandbox_console.cli import ls\n"
        "def broken(context):\n    secret = 'a-very-secret-value'\n    raise RuntimeError(secret)\n"
        "ls.ls = broken\nfrom sandbox_console.__main__ import main\nsys.exit(main(['ls']))\n"
    )
    import sys

    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(cli.home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=False)
    assert done.returncode == 1
    first, hint = done.stderr.decode().splitlines()
    assert first == "error: unexpected RuntimeError"
    written = Path(hint.removeprefix("hint: the details are in "))
    assert "in broken" in written.read_text()
    assert "a-very-secret-value" not in written.read_text().replace("secret = 'a-very-secret-value'", "")
    assert written.stat().st_mode & 0o077 == 0
