"""Checks limits, no network and secrets, from inside the sandbox and on this host."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually

_VALUE = "hunter2-of-the-conformance-suite"
_SECRET = ResolvedSecret("TOKEN", _VALUE)
# The loopback, and the devices, all down, that the kernel adds to every network namespace if modules are loaded.
_SLEEPING = {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
_BUSY = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"


class Walls(Checks):
    async def test_memory_past_its_limit_is_refused(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LIMIT_MEMORY)
        ref = await rig.make(memory_mib=64)
        size = 200 * 1024 * 1024
        ran = await rig.sh(ref, f"head -c {size} /dev/zero | tail -c {size} | wc -c")
        assert ran.out.strip() != str(size).encode()

    async def test_processes_past_their_limit_are_refused(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LIMIT_PIDS)
        ref = await rig.make(pids=32)
        ran = await rig.sh(ref, "i=0; while [ $i -lt 60 ]; do sleep 3 & i=$((i+1)); done; echo all")
        assert b"all" not in ran.out

    async def test_cpu_is_held_to_its_limit(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LIMIT_CPU)
        limit = rig.profile.least_cpus
        ref = await rig.make(cpus=limit)
        now = "cut -d' ' -f1 /proc/uptime"
        ran = await rig.sh(ref, f"{now}; ({_BUSY}) & {_BUSY}; wait; {now}; times")
        begun, ended, *own_and_children = ran.out.decode().split("\n")
        took, used = float(ended) - float(begun), sum(seconds(line.split()[0]) for line in own_and_children[:2])
        assert used <= 1.75 * limit * took + 0.15, (used, took)

    async def test_no_network_but_the_loopback(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_NONE)
        ref = await rig.idle()
        devices = (await rig.sh(ref, "cat /proc/net/dev")).out.decode().splitlines()[2:]
        up = {line.split(":")[0].strip() for line in devices} - _SLEEPING
        assert not up
        assert len((await rig.sh(ref, "cat /proc/net/route")).out.decode().splitlines()) <= 1

    async def test_no_socket_of_the_host_is_in_reach(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_NONE)
        ref = await rig.idle()
        inside = (await rig.sh(ref, "cat /proc/net/unix")).out
        host = Path("/proc/net/unix").read_bytes()
        assert not {line.split()[-1] for line in inside.splitlines() if b" @" in line} & set(host.split())

    async def test_a_guest_cannot_gain_privileges(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        rig.needs_walls()
        status = (await rig.sh(await rig.idle(), "cat /proc/self/status")).out.decode()
        assert "NoNewPrivs:\t1" in status

    async def test_system_calls_are_filtered_for_all_that_runs_in_it(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SYSTEM_CALLS)
        ref = await rig.script("grep Seccomp: /proc/self/status; sleep 1000")
        assert await _modes(rig, ref) == {"2"}, "no filter holds a command, or the first process"
        await eventually(lambda: _said(rig, ref), "the main command says nothing")
        assert (await rig.text(ref)).split()[1] == b"2", "no filter holds the main command"
        assert (await rig.sh(ref, "unshare -U true || unshare -r true")).code != 0, "it makes user namespaces"
        assert await _told(rig, ref)

    async def test_their_filter_is_left_out_or_relaxed_where_asked(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SYSTEM_CALLS)
        bare = await rig.make(seccomp="off")
        outer = Path("/proc/self/status").read_text().split("Seccomp:")[1].split()[0]
        assert await _modes(rig, bare) == {outer}
        assert not await _told(rig, bare), "it is reported as filtered, and is not"
        traced, nested = await rig.make(ptrace=True), await rig.make(nested_userns=True)
        for ref in (traced, nested):
            assert await _modes(rig, ref) == {"2"}, "it takes the whole filter away"
            assert await _told(rig, ref)
        assert (await rig.sh(nested, "unshare -U true || unshare -r true")).code == 0, "nested_userns makes none"

    async def test_a_secret_reaches_the_command_and_the_main_process(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SECRET_ENV)
        ref = await rig.script('echo "main $TOKEN"; sleep 1000', secrets=(_SECRET,))
        assert (await rig.sh(ref, 'echo "$TOKEN"', secrets=(_SECRET,))).out == f"{_VALUE}\n".encode()
        await rig.stop(ref, grace_s=0.2)
        assert f"main {_VALUE}".encode() in await rig.text(ref)

    async def test_a_secret_is_in_no_argument_list(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SECRET_ENV)
        ref = await rig.make(secrets=(_SECRET,))
        process = await rig.exec(ref, "sleep", "7799", secrets=(_SECRET,))

        async def arguments() -> bytes:
            inside = (await rig.processes(ref)).replace(" ", "\0") if rig.profile.own_kernel else ""
            return _arguments() + inside.encode()

        async def runs() -> bool:
            return b"sleep\x007799" in await arguments()

        await eventually(runs, "the command is not among the processes")
        assert _VALUE.encode() not in await arguments()
        await process.kill()

    async def test_a_secret_is_not_in_what_the_backend_tells(self, rig: Rig) -> None:
        rig.needs(Capability.SECRET_ENV)
        ref = await rig.make(secrets=(_SECRET,))
        assert _VALUE not in repr(await rig.look(ref))
        assert _VALUE not in repr(await rig.backend.list())

    async def test_the_root_cannot_be_written_where_asked(self, rig: Rig) -> None:
        rig.needs_sh(Capability.READ_ONLY_ROOT)
        ref = await rig.make(read_only_root=True)
        assert (await rig.sh(ref, "echo x >/usr/x || echo x >/bin/x")).code != 0


async def _modes(rig: Rig, ref: SandboxRef) -> set[str]:
    """The seccomp modes of a command and the sandbox's first process: 0, or 2 for a filter (proc(5))."""
    ran = await rig.sh(ref, "grep -h Seccomp: /proc/self/status /proc/1/status")
    return {line.split()[1] for line in ran.out.decode().splitlines()}


async def _said(rig: Rig, ref: SandboxRef) -> bool:
    return bool(await rig.text(ref))


async def _told(rig: Rig, ref: SandboxRef) -> bool:
    """Whether the backend says that a filter holds."""
    return any(fact.field == "seccomp" and fact.enforced for fact in (await rig.look(ref)).effective)


def _arguments() -> bytes:
    """The argument lists of every process of this host."""
    found = b""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found += (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
    return found


def seconds(text: str) -> float:
    """The output of the shell's ``times``, in seconds."""
    minutes, _, seconds = text.rstrip("s").partition("m")
    return int(minutes) * 60 + float(seconds)
