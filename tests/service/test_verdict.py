"""Why did it die? Evidence first; "unknown" where there is none."""

from __future__ import annotations

import pytest
from msgspec import structs

from sandbox_console.model.audit import AuditEntry, AuditRow
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.verdict import verdict

REF = SandboxRef("fake", "local", "a")


def ended(end, status=Status.EXITED, **fields):
    return Sandbox(REF, "a", status, finished_at=1000.0, exit=end, **fields)


@pytest.mark.parametrize(
    ("end", "words", "sure"),
    [
        (Exit(0), "it finished: exit 0", True),
        (Exit(3), "its command failed: exit 3", True),
        (Exit(127), "its command failed: exit 127, command not found", True),
        (Exit(137, 9, oom=True), "out of memory", True),
        (Exit(137, 9, oom=False), "killed by SIGKILL, unknown by whom; not out of memory", False),
        (Exit(137), "killed by SIGKILL, unknown by whom; whether out of memory cannot be known here", False),
        (Exit(139, 11), "crashed: SIGSEGV", True),
        (Exit(143, 15), "ended by SIGTERM, unknown by whom", False),
        (Exit(None), "unknown: the backend reports no exit code", False),
        (None, "unknown", False),
        (Exit(137, 9, reason="it ran longer than its max_duration_s"), "it ran longer than its limit of 5 s", True),
        (Exit(137, 9, reason="idle"), "idle for longer than its limit", True),
    ],
)
def test_from_the_exit(end, words, sure):
    found = verdict(ended(end, spec=SandboxSpec("a", max_duration_s=5.0)), ())
    assert found.headline.startswith(words)
    assert found.sure is sure


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("max_duration_s ran out", "it ran longer than its limit of 5 s"),
        ("idle_timeout_s ran out", "idle for longer than its limit"),
        ("its max_duration ran out", "it ran longer than its limit of 5 s"),
        ("its idle_timeout ran out", "idle for longer than its limit"),
    ],
)
def test_a_time_limit_in_each_backends_words(reason, words):
    assert verdict(ended(Exit(137, 9, reason=reason), spec=SandboxSpec("a", max_duration_s=5.0)), ()).headline == words


@pytest.mark.parametrize(
    "reason",
    [
        'exec: "/bin/idle": stat /bin/idle: no such file or directory',
        "unable to find user duration: no matching entries in passwd file",
        "connect: the request timed out",
        "max_duration_s ran out, says the image",
    ],
)
def test_a_name_in_an_engines_words_is_no_time_limit(reason):
    """An image chooses its programs' names, and so the words of the error that they are missing."""
    found = verdict(ended(Exit(127, reason=reason), spec=SandboxSpec("a", max_duration_s=5.0)), ())
    assert found.headline.startswith("its command failed: exit 127")
    assert reason in found.evidence


def test_states_without_an_exit():
    assert verdict(ended(None, Status.LOST, detail="its supervisor went away"), ()).headline.startswith(
        "lost: its superv"
    )
    assert verdict(ended(None, Status.FAILED), ()).headline == "it never ran: unknown why"
    assert verdict(ended(None, Status.RUNNING), ()) is None


def entry(action, at, outcome="ok"):
    def row(kind, **more):
        fields = dict.fromkeys(AuditRow.__struct_fields__) | {
            "seq": 7,
            "at_ns": int(at * 1e9),
            "action": action,
            "actor": "user:ann",
            "outcome": "",
            "dur_us": None,
            "body": {},
        }
        return AuditRow(**(fields | more))

    return AuditEntry(row("attempt"), row("end", outcome=outcome, dur_us=2_000_000))


def test_who_killed_it_stands_in_the_audit_log():
    found = verdict(ended(Exit(137, 9, oom=False)), [entry("kill", 999.0)])
    assert found.headline == "killed by user:ann"
    assert found.evidence[-1] == "audit row 7: kill by user:ann"


@pytest.mark.parametrize(
    "one", [entry("kill", 100.0), entry("kill", 1100.0), entry("exec", 999.0), entry("kill", 999.0, "denied")]
)
def test_what_did_not_end_it_is_not_blamed(one):
    assert "unknown by whom" in verdict(ended(Exit(137, 9, oom=False)), [one]).headline


def test_out_of_memory_counts_more_than_a_stop_that_came_late():
    assert verdict(ended(Exit(137, 9, oom=True)), [entry("stop", 999.0)]).headline.startswith("out of memory")


@pytest.mark.parametrize(
    ("status", "end", "once"),
    [
        (Status.EXITED, Exit(137, 9, oom=True, reason="out of memory"), "memory: yes"),
        (Status.FAILED, Exit(126, reason="exec format error"), "exec format"),
        (Status.EXITED, Exit(137, 9, reason="Idle"), "idle"),
    ],
)
def test_nothing_is_said_twice(status, end, once):
    found = verdict(ended(end, status), ())
    said = [found.headline, *found.evidence]
    assert sum(once in text.casefold() for text in said) == 1, said
    assert said.count(end.reason) == 0


def test_a_reason_that_says_more_stands_there():
    found = verdict(ended(Exit(137, 9, oom=True, reason="memory.max of 64 MiB was reached")), ())
    assert "memory.max of 64 MiB was reached" in found.evidence


STARTED = 1000.0


def of_docker(code: int, *happened: GuestEvent, finished: float = 1100.0):
    one = ended(Exit(code, code - 128 if 128 < code < 193 else None, oom=False))
    return verdict(structs.replace(one, started_at=STARTED, finished_at=finished), (), happened)


@pytest.mark.parametrize(
    ("code", "happened", "words"),
    [
        (137, [GuestEvent(1110.0, "engine_start")], "it ended with its engine, which was stopped or restarted"),
        (255, [GuestEvent(1099.0, "engine_start")], "it ended with its engine, which was stopped or restarted"),
        (
            255,
            [GuestEvent(1090.0, "engine_start"), GuestEvent(1080.0, "machine_start")],
            "it ended with its machine, which was restarted",
        ),
        (137, [GuestEvent(9000.0, "engine_start")], "killed by SIGKILL, unknown by whom"),
        (3, [GuestEvent(1101.0, "engine_start")], "its command failed: exit 3"),
        (1, [GuestEvent(1050.0, "gateway_die")], "its command failed: exit 1, after its egress gateway ended"),
        (1, [GuestEvent(1050.0, "gateway_end"), GuestEvent(1050.1, "gateway_start")], "its command failed: exit 1"),
        (1, [GuestEvent(900.0, "gateway_die")], "its command failed: exit 1"),
    ],
)
def test_an_end_with_what_it_runs_on(code, happened, words):
    found = of_docker(code, *happened)
    assert found.headline.startswith(words)
    assert ("gateway" in found.headline) is ("gateway" in words)


def test_a_loop_of_restarts_says_how_it_ends():
    loop = Sandbox(REF, "a", Status.STARTING, restarts=12)
    found = verdict(loop, (), [GuestEvent(1.0, "die", attributes={"exitCode": "7"}), GuestEvent(2.0, "start")])
    assert found.headline == "it ended and was started again 12 times, the last time with exit 7"
    assert verdict(structs.replace(loop, restarts=0), ()) is None
