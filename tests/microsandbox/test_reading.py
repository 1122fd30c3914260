"""What is read off the runtime's own words, from samples that it wrote."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import time
import types
from pathlib import Path

import pytest

from sandbox_console.backends.microsandbox import (
    boot_failure,
    boots,
    create_options,
    egress,
    guest_scripts,
    images,
    inventory,
    kvm,
    kvm_probe,
    logs,
    main_process,
    network,
    ports,
    translate,
)
from sandbox_console.backends.microsandbox.boots import Run
from sandbox_console.backends.microsandbox.logs import PIECE, Last, Lines
from sandbox_console.errors import Conflict, InvalidSpec, SecretError, UsageError
from sandbox_console.model.log import LogQuery, LogRecord
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

SAMPLES = Path(__file__).parent / "samples"
CANARY = "canary-secret-4711"


def logs_of(home, name, text):
    folder = home / "sandboxes" / name / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runtime.log").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("sample", "reason", "hint"),
    [
        ("internal-error.log", "cannot run a guest", "nested"),
        ("no-kvm.log", "no /dev/kvm", "load the kvm module"),
        ("good.log", None, None),
    ],
)
def test_a_boots_failure_is_read_off_the_log(tmp_path, monkeypatch, sample, reason, hint):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    logs_of(tmp_path, "one", (SAMPLES / sample).read_text())
    found = boot_failure.failure("one")
    if reason is None:
        assert found is None
    else:
        assert reason in found[0]
        assert hint in found[1]


def test_only_the_newest_boot_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    failed, good = (SAMPLES / "internal-error.log").read_text(), (SAMPLES / "good.log").read_text()
    logs_of(tmp_path, "one", failed + good)
    assert boot_failure.failure("one") is None
    logs_of(tmp_path, "one", good + failed)
    assert boot_failure.failure("one") is not None


@pytest.mark.parametrize("times", [1, 400])  # 400: the boot itself is no more in what is read of the log
def test_what_a_guest_brings_into_the_log_is_no_failed_boot(tmp_path, monkeypatch, times):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    asked = VIOLATION.decode().replace("path=/leak", "path=/x?sandbox starting&max duration 1s exceeded")
    hostile = f"2026-11-21T08:43:39.000001Z  {asked}" * times
    logs_of(tmp_path, "one", (SAMPLES / "good.log").read_text() + hostile)
    assert boot_failure.failure("one") is None
    assert boots.ended("one").reason == ""


def test_a_sandboxs_name_is_no_reason_of_its_end(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    log = (SAMPLES / "good.log").read_text()
    logs_of(tmp_path, "max_duration", log.replace("sandbox=e1", "sandbox=max_duration"))
    assert boots.ended("max_duration").reason == ""
    logs_of(
        tmp_path,
        "two",
        f"{log}2026-11-21T08:44:38Z  INFO microsandbox_runtime::runner::vm: max duration 20s exceeded, triggering exit\n",
    )
    assert boots.ended("two").reason == "its max_duration ran out"


def test_no_permission_names_the_group(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    logs_of(tmp_path, "one", (SAMPLES / "no-kvm.log").read_text().replace("Error(2)", "Error(13)"))
    assert "group kvm" in boot_failure.failure("one")[1]


def test_the_guests_own_error_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    folder = logs_of(tmp_path, "one", (SAMPLES / "good.log").read_text())
    told = {"t": "2026-11-21T21:35:17.229Z", "stage": "config", "errno": None, "reason": "user_not_found"}
    for message, shown in (("the root has no init",) * 2, ("guest user not found: joe", "its image has no such user")):
        (folder / "boot-error.json").write_text(json.dumps(told | {"message": message}))
        assert boot_failure.failure("one")[0] == shown


def test_why_kvm_does_not_work_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(kvm, "KVM", tmp_path / "kvm")
    assert "no /dev/kvm" in kvm.problem()[0]
    (tmp_path / "kvm").write_bytes(b"not a device")
    if os.uname().machine == "x86_64":
        reason, hint = kvm.problem()
        assert "cannot run a guest" in reason
        assert "nested" in hint
    if os.geteuid() == 0:
        (tmp_path / "kvm").chmod(0o600)
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            folder.chmod(0o755)
        os.seteuid(65534)
        try:
            reason, hint = kvm.problem()
        finally:
            os.seteuid(0)
        assert "permission denied" in reason
        assert "group kvm" in hint


def test_the_probe_asks_for_what_a_kernel_needs():
    assert struct.pack("<Q", kvm_probe._HIGH) in kvm_probe._PROGRAM  # paging beyond the low addresses
    assert b"\x66\x0f\xef" in kvm_probe._PROGRAM  # pxor, at which a KVM that interprets gives up
    assert kvm_probe._PROGRAM.endswith(b"\xf4")


def _handle(config, status="running", name="one"):
    return types.SimpleNamespace(
        id="local:5", name=name, status=status, config_json=json.dumps(config), created_at=1000.0, updated_at=2000.0
    )


def _job(id, boot_id, created, state="running", code=None, command=("sleep", "9")):
    return types.SimpleNamespace(
        id=id, runtime_boot_id=boot_id, created_at=created, state=state, exit_code=code, command=list(command),
        started_at=created, finished_at=created + 1, error=None, pid=468,
        failure={"message": 'spawn "nosuch": No such file'} if state == "failed" else None,
    )  # fmt: skip


def _managed(**spec):
    shown = SandboxSpec("one", image="x", command=("sleep", "9"), **spec)
    return {
        "labels": {
            "team": "x", "sandbox-console.id": "abc", "sandbox-console.spec": json.dumps(shown.to_dict()),
        },
        "env": [{"key": "PLAIN", "value": CANARY}],
        "network": {"enabled": True, "secrets": {"secrets": [{"env_var": "TOKEN", "value": CANARY}]}, "proxy": {"credentials": CANARY}},
        "runtime": {"scripts": {"setup": CANARY}},
        "init": {"env": {"X": CANARY}},
        "patches": [{"content": CANARY}],
    }  # fmt: skip


def test_no_value_of_the_config_leaves_the_adapter():
    seen = translate.view(_handle(_managed()))
    assert CANARY not in repr(seen)
    assert CANARY not in repr(translate.sandbox(seen, Run(), [], None))
    assert seen.public["network"]["secrets"] == {"TOKEN": "***"}


@pytest.mark.parametrize(
    ("theirs", "ours", "managed"),
    [("", "b", False), ("a", "", False), ("a", "a", True), ("a", "b", False), ("", "", True)],
)
def test_ours_is_what_this_state_directory_made(theirs, ours, managed):
    config = _managed()
    config["labels"] |= {"sandbox-console.installation": theirs}
    found = translate.sandbox(translate.view(_handle(config)), Run(), [], None, ours=ours)
    assert (found.managed, found.maker, found.spec is not None) == (
        managed,
        "" if managed else "another console",
        managed,
    )
    assert found.ref.id == "abc"
    assert found.labels == {"team": "x"}


def test_what_is_made_carries_the_id_of_its_installation(tmp_path):
    spec = SandboxSpec("one", image="x", labels={"sandbox-console.installation": "forged"})
    assert create_options.own_labels(("id", "mine"), spec, [])["sandbox-console.installation"] == "mine"


@pytest.mark.parametrize(
    ("status", "jobs", "marks", "shown", "code"),
    [
        ("running", [], {}, Status.STARTING, None),
        ("running", [_job("j", "b", 1)], {}, Status.RUNNING, None),
        ("running", [_job("j", "b", 1, "exited", 7)], {}, Status.EXITED, 7),
        ("stopped", [_job("j", "b", 1, "exited", 7)], {}, Status.EXITED, 7),
        ("stopped", [_job("j", "b", 1, "exited", -1)], {}, Status.EXITED, None),
        ("stopped", [_job("j", "b", 1, "failed")], {}, Status.FAILED, None),
        ("stopped", [_job("j", "b", 1, "lost")], {"sandbox-console.ended": "j 137"}, Status.EXITED, 137),
        ("crashed", [_job("j", "b", 1, "lost")], {"sandbox-console.ended": "j 137"}, Status.EXITED, 137),
        ("crashed", [_job("j", "b", 1, "lost")], {"sandbox-console.ended": "older 137"}, Status.LOST, None),
        ("crashed", [_job("j", "b", 1, "lost")], {}, Status.LOST, None),
        ("paused", [_job("j", "b", 1)], {}, Status.PAUSED, None),
        ("running", [_job("other", "b", 2, "exited", 3), _job("j", "b", 1)], {}, Status.RUNNING, None),
        ("running", [_job("j", "old", 1, "exited", 3), _job("k", "new", 2)], {}, Status.RUNNING, None),
        ("stopped", [_job("j", "b", 1, "exited", 3, ("other", "command"))], {}, Status.EXITED, None),
    ],
)
def test_the_state_is_the_main_processs(status, jobs, marks, shown, code):
    config = _managed()
    config["labels"] |= marks
    found = translate.sandbox(translate.view(_handle(config, status)), Run(), jobs, None)
    assert found.status is shown
    assert (found.exit.code if found.exit else None) == code
    assert found.labels == {"team": "x"}
    if shown is Status.LOST:
        assert found.detail.startswith("crashed: ")
    if shown is Status.FAILED:
        assert found.detail == 'its command could not be run: spawn "nosuch": No such file'


KERNEL = """\
[    1.324996] genirq: Flags mismatch irq 8. 00200000 (rtc0) vs. 00200080 (virtio3)
[   11.259855] Out of memory: Killed process 468 (sh) total-vm:198876kB, anon-rss:120200kB, file-rss:64kB
"""


@pytest.mark.parametrize(
    ("log", "code", "shown"),
    [
        (KERNEL, -1, (137, True)),
        (KERNEL, 137, (137, True)),  # a shell whose child was killed
        (KERNEL.replace("468", "469"), -1, (None, None)),
        (KERNEL + "[    1.324996] another boot\n", -1, (None, None)),
        ("its own words: Out of memory: Killed process 468 (sh)\n", -1, (None, None)),
        (KERNEL, 3, (3, None)),
    ],
)
def test_out_of_memory_is_told_by_the_guests_kernel(tmp_path, monkeypatch, log, code, shown):
    monkeypatch.setenv("MSB_HOME", str(tmp_path))
    (logs_of(tmp_path, "one", (SAMPLES / "good.log").read_text()) / "kernel.log").write_text(log)
    job = _job("j", "b", 1, "exited", code)
    seen = translate.view(_handle(_managed(), "stopped"))
    run, failed = inventory._boot_of(seen, [job], None)
    found = translate.sandbox(seen, run, [job], failed).exit
    assert (found.code, found.oom) == shown


def test_a_rename_shows_in_name_and_spec():
    config = _managed()
    config["labels"]["sandbox-console.name"] = "two"
    found = translate.sandbox(translate.view(_handle(config)), Run(), [], None)
    assert (found.name, found.spec.name) == ("two", "two")
    assert "one" in [fact.value for fact in found.effective if fact.field == "name"]


def test_a_failed_boot_is_failed_with_its_cause():
    found = translate.sandbox(translate.view(_handle(_managed(), "stopped")), Run(), [], ("no /dev/kvm", "load it"))
    assert (found.status, found.detail) == (Status.FAILED, "no /dev/kvm; next: load it")


def test_between_a_boot_and_its_main_process_an_older_one_is_not_its_end():
    jobs = [_job("j", "old", 1, "exited", 3)]
    seen = translate.view(_handle(_managed()))
    assert translate.sandbox(seen, Run(id="old"), jobs, None).exit.code == 3
    booting = translate.sandbox(seen, Run(id="new", started_at=time.time()), jobs, None)
    assert (booting.status, booting.exit) == (Status.STARTING, None)
    never = translate.sandbox(seen, Run(id="new", started_at=time.time() - translate.LAUNCH_S - 1), jobs, None)
    assert (never.status, "start it again" in never.detail) == (Status.FAILED, True)
    stopped = translate.sandbox(translate.view(_handle(_managed(), "stopped")), Run(id="new"), jobs, None)
    assert (stopped.status, stopped.exit.code) == (Status.EXITED, None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("alpine", "alpine"),
        ({"Oci": {"reference": "alpine:3"}}, "alpine:3"),
        ({"Bind": {"path": "/x", "follow_root_symlinks": False}}, "dir:/x"),
        ({"Oci": "alpine"}, "alpine"),
        (None, ""),
        ({"A": 1, "B": 2}, ""),
    ],
)
def test_an_image_is_named(value, shown):
    assert translate.image(value) == shown


def _entry(data, source="stdout", at=1000, cursor=None):
    return types.SimpleNamespace(data=data, source=source, timestamp_ms=at, cursor=cursor)


def test_chunks_become_lines():
    lines = Lines()
    found = [
        *lines.feed(_entry(b"one\ntwo\nth")),
        *lines.feed(_entry(b"err\n", "stderr")),
        *lines.feed(_entry(b"ree\r\n\n")),
    ]
    assert [record.data for record in found] == [b"one\n", b"two\n", b"err\n", b"three\r\n", b"\n"]
    lines.feed(_entry(b"open"))
    assert [record.data for record in lines.rest()] == [b"open"]
    assert lines.rest() == []


def test_a_line_without_an_end_comes_in_pieces():
    lines = Lines()
    found = [record for _ in range(5) for record in lines.feed(_entry(b"x" * (PIECE // 2)))]
    assert [len(record.data) for record in found] == [PIECE, PIECE]
    assert [len(record.data) for record in lines.rest()] == [PIECE // 2]


def test_output_that_the_runtime_dropped_is_told():
    lines = Lines()
    items = [lines.feed(_entry(b"x\n", cursor=f"job_1:{number}")) for number in (3, 4, 7)]
    assert [[type(item).__name__ for item in one] for one in items] == [
        ["LogGap", "LogRecord"],
        ["LogRecord"],
        ["LogGap", "LogRecord"],
    ]
    lines.rest()
    assert [type(item) for item in lines.feed(_entry(b"x\n", cursor="job_2:1"))] == [LogRecord]
    part = Lines(whole=False)  # what was asked for begins later
    assert [type(item) for item in part.feed(_entry(b"x\n", cursor="job_1:3"))] == [LogRecord]


def test_of_the_last_lines_no_more_are_kept_than_asked():
    last = Last(2)
    assert [last.keep([one]) for one in "abc"] == [[], [], []]
    assert last.all() == ["b", "c"]
    assert Last(0).keep(["a"]) == []
    assert Last(None).keep(["a"]) == ["a"]


VIOLATION = (
    b"WARN microsandbox_network::engine::secrets::handler: secret violation: placeholder detected where substitution or"
    b" passthrough is not permitted action=block-and-log secret_env_var=TOKEN placeholder=$MSB_TOKEN protocol=http/1.1"
    b" sni=other.acme.org host=other.acme.org method=GET path=/leak location=header match_form=raw"
    b" guest_dst=1.2.3.4:443 http2_stream_id=\n"
)


def test_a_violation_is_a_record():
    found = egress.record("one", _entry(VIOLATION))
    assert (found.host, found.port, found.allowed, found.reason) == ("other.acme.org", 443, False, "secret_violation")
    assert (found.rule, found.method, found.address) == ("TOKEN", "GET", "1.2.3.4")
    assert egress.record("one", _entry(b"INFO microsandbox_runtime::runner::vm: entering VM sandbox=x\n")) is None


def test_a_guests_words_do_not_change_a_record():
    hostile = VIOLATION.replace(b"path=/leak", b"path=/x guest_dst=9.9.9.9:1 http2_stream_id= host=good.example.com")
    found = egress.record("one", _entry(hostile))
    assert (found.host, found.address) == ("other.acme.org", "1.2.3.4")


def test_patterns_become_rules_and_none_is_no_network():
    module = pytest.importorskip("microsandbox")
    empty = network.policy(module, ())
    assert (str(empty.default_egress), str(empty.default_ingress), empty.rules) == ("deny", "deny", ())
    rules = network.policy(module, ("a.example.com", "*.example.org:8443")).rules[2:]
    assert [(str(one.destination.kind), one.destination.value, one.port) for one in rules] == [
        ("domain", "a.example.com", "80"),
        ("domain", "a.example.com", "443"),
        ("domain_suffix", "example.org", "8443"),
    ]


async def test_a_followed_log_has_the_last_words_of_what_ended_meanwhile(monkeypatch):
    module = pytest.importorskip("microsandbox")
    monkeypatch.setattr(logs, "QUIET_S", 0.01)
    said = [
        types.SimpleNamespace(data=b"%d\n" % number, timestamp=0, source="stdout", cursor=f"x:{number}")
        for number in (1, 2, 3)
    ]

    class Job:
        """Ends without a word to the one who follows, as the runtime's stream of a job does."""

        async def log_stream(self, *, from_cursor, follow):
            begin = int(from_cursor.rpartition(":")[2]) if from_cursor else 0
            return entries(said[begin : 2 if follow else 3], follow)

        async def inspect(self):
            return types.SimpleNamespace(state="exited")

    async def entries(some, follow):
        for one in some:
            yield one
        if follow:
            await asyncio.Event().wait()

    async def refresh():
        return types.SimpleNamespace(status="running")

    handle = types.SimpleNamespace(refresh=refresh)
    found = [one async for items in logs._follow(module, handle, Job(), LogQuery(), logs.Lines()) for one in items]
    assert [one.data for one in found] == [b"1\n", b"2\n", b"3\n"]


def test_a_published_port_lets_in_and_nothing_out():
    module = pytest.importorskip("microsandbox")
    wanted = (PublishedPort("127.0.0.1", 8080, 80), PublishedPort("::1", 8081, 80))
    told = network.network(module, (), False, (), wanted)
    assert [(one.host_port, one.guest_port, one.bind) for one in told.ports] == [
        (8080, 80, "127.0.0.1"),
        (8081, 80, "::1"),
    ]
    [rule] = told.policy.rules
    assert (str(rule.direction), str(rule.action), rule.port) == ("ingress", "allow", "80")
    assert (str(told.policy.default_egress), str(told.policy.default_ingress)) == ("deny", "deny")


def test_ports_are_told_by_what_the_process_listens_at():
    noted = {"host_port": 8080, "guest_port": 80, "protocol": "tcp", "host_bind": "127.0.0.1"}
    other = noted | {"host_port": 8081, "host_bind": "0.0.0.0"}
    found = ports.of_config({"ports": [noted, other, noted | {"protocol": "udp"}]})
    assert [one.host_address for one in found] == ["127.0.0.1:8080", "0.0.0.0:8081"]
    [there] = ports.facts(found, frozenset({"127.0.0.1:8080", "0.0.0.0:8081"}))
    assert (there.field, there.value, there.enforced) == ("port 80/tcp", "127.0.0.1:8080, 0.0.0.0:8081", True)
    assert "other machines" in there.note
    [half] = ports.facts(found, frozenset({"127.0.0.1:8080"}))
    assert (half.value, half.enforced, half.note) == ("127.0.0.1:8080", False, "nothing listens at 0.0.0.0:8081")
    [ended] = ports.facts(found, None)
    assert (ended.value, ended.enforced) == ("not published", True)


def test_the_listeners_of_a_process_are_found():
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        found = ports.listening(os.getpid(), ())
        assert {f"127.0.0.1:{four.getsockname()[1]}", f"[::1]:{six.getsockname()[1]}"} <= found
        assert not ports.listening(os.getppid(), ()) & {f"127.0.0.1:{four.getsockname()[1]}"}


def test_places_are_chosen_before_a_boot():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(Conflict, match=f"127.0.0.1:{number} is taken by another program of the host$"):
            ports.choose(SandboxSpec("x", ports=(f"{number}:80",)))
        [kept] = ports.choose(SandboxSpec("x", ports=("80",)), (PublishedPort("127.0.0.1", number, 80),))
        assert kept.host_port not in (0, number)
    assert ports.choose(SandboxSpec("x", ports=("80",)), (kept,)) == (kept,)
    with pytest.raises(InvalidSpec, match=r"192\.0\.2\.1:8080"):
        ports.choose(SandboxSpec("x", ports=("192.0.2.1:8080:80",)))


def test_tls_is_intercepted_only_for_placeholders():
    module = pytest.importorskip("microsandbox")
    assert network.network(module, (), False, ("ca.pem",)).tls is None
    assert network.network(module, (), True, ("ca.pem",)).tls.upstream_ca_certs == ("ca.pem",)
    # Strict, no TLS goes out where none is intercepted.
    assert [network.network(module, ("a.example.com",), one, ()).strict for one in (False, True)] == [False, True]
    secrets = [
        ResolvedSecret("A", "v", "env"),
        ResolvedSecret("B", "v", "placeholder", ("api.example.com", "*.example.org")),
    ]
    [entry] = network.substituted(module, secrets)
    assert (entry.env_var, entry.allow) == ("B", ("api.example.com", "*.example.org"))
    with pytest.raises(SecretError, match="no host"):
        network.check([ResolvedSecret("B", "v", "placeholder")])


def test_processes_are_read_and_the_kernels_left_out():
    stat = "7 (a b) c) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 100 0 0"
    text = f"{stat}\n1000 2048\nsh\0-c\0x\0\n\n9 (kworker) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n0 0\n\0\n\n"
    asking = stat.replace("7 (a b) c) S 1 7 7", "12 (sh) R 1 12 12")
    text = f"12\n{asking}\n0 9\nsh\0\0\n\n{text}"
    [found] = guest_scripts.parse_processes(text.encode())
    assert (found.pid, found.parent, found.user, found.cpu_s, found.memory_bytes) == (7, 1, "1000", 2.0, 2048 * 1024)
    assert found.command == "sh -c x"


def test_a_fraction_of_a_cpu_is_refused_or_rounded_up():
    with pytest.raises(InvalidSpec, match="whole"):
        create_options.whole_cpus(SandboxSpec("x", cpus=0.5))
    assert create_options.whole_cpus(SandboxSpec("x", cpus=1.5, limits="best-effort")) == 2
    assert main_process.mains([], ()) == []
    assert sys.platform


def test_a_job_of_another_is_no_main_process():
    jobs = [_job("a", "one", 5), _job("b", "one", 3, command=("backup",))]
    assert main_process.mains(jobs, ("sleep", "9")) == []


@pytest.mark.parametrize("name", ["/etc", "./root", "../root", ".", "..", "/srv/disk.raw", "//x", "~/x"])
async def test_a_path_is_no_images_name(name):
    """The runtime would boot from this folder of the host, which no rule about ``dir:`` has seen."""
    assert "not an image's name" in create_options.problems(SandboxSpec("x", image=name))["image"]
    with pytest.raises(UsageError, match="not an image's name"):
        await images.pull(None, name, create_options.Options(), lambda _: None)


@pytest.mark.parametrize("name", ["alpine", "localhost:5000/a/b:1", "[::1]:5000/a", "Registry.example/a@sha256:00"])
def test_names_of_images_stay_names(name):
    assert create_options.problems(SandboxSpec("x", image=name)) == {}
