"""Starts bwrap, waits until the main command runs, and reports how it ended."""

import json
import os
import resource
import signal
import time

from . import enter, kernel, mount_sources, tree, wire

_START_S = 20.0
_LATE = "RLIMIT_NPROC"


class StartFailed(Exception):
    """The sandbox cannot run; ``code`` is a shell's exit code, or 125 if the command is not at fault.

    ``taken`` is an address of this host that something else uses.
    """

    def __init__(self, reason: str, code: int = 125, *, hint: str = "", taken: str = "") -> None:
        super().__init__(reason)
        self.code, self.hint, self.taken = code, hint, taken


def _program(path: str) -> int:
    """Open one of bwrap's files. A file that is not root's is passed as a sealed copy in memory.

    The guest can open what bwrap was started from a second time, through /proc/1/exe and the descriptor of the
    preloaded library: as its owner, which an ordinary user's guest is, it could write the file that next runs outside.
    """
    fd = os.open(path, os.O_RDONLY)
    if os.fstat(fd).st_uid == 0:
        return fd  # a copy would lose setuid, or a security profile that depends on its path
    with os.fdopen(fd, "rb") as file:
        return wire.to_sealed(os.path.basename(path), file.read())


class Jail:
    """A bwrap process, the first process of its PID namespace, and the main command."""

    def __init__(self, order: dict, joiners: list[int]) -> None:  # type: ignore[type-arg]
        self._order = order
        self._spare: list[int] = []
        self._sources = mount_sources.MountSources()
        self._status, status_w = os.pipe()
        block_r, self._release = os.pipe()
        self._bwrap_ends = (status_w, block_r)
        self.stdout, out_w = os.pipe()
        self.stderr, err_w = os.pipe()
        args = self._args()
        null = os.open("/dev/null", os.O_RDONLY)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become_bwrap(args, joiners, [null, out_w, err_w])
            except BaseException as error:  # noqa: BLE001 - nothing may return into the supervisor's loop
                os.write(2, f"bwrap: {error}\n".encode())
            finally:
                os._exit(125)
        for fd in (*self._bwrap_ends, out_w, err_w, null, args, *self._spare):
            os.close(fd)
        self._reported = b""
        self.main = 0
        self._main_fd = -1
        self.init = self._read_init()

    def _args(self) -> int:
        """All arguments of bwrap, in memory: its command line shows only a descriptor's number."""
        words = ["--json-status-fd", str(self._bwrap_ends[0]), "--block-fd", str(self._bwrap_ends[1]), "--clearenv"]
        for name, value in self._order["env"].items():
            words += ["--setenv", name, value]
        for word in self._order["args"]:
            words += self._expanded(word) if isinstance(word, dict) else [word]
        if program := bytes.fromhex(self._order["seccomp"]):
            fd = self._memory("seccomp", program)
            self._spare.append(fd)
            words += ["--seccomp", str(fd)]
        # bwrap reads the command only from the real command line, so a word in front of it is put there.
        return self._memory("args", b"\0".join(os.fsencode(word) for word in words) + b"\0")

    def _expanded(self, item: dict[str, str]) -> list[str]:
        if "text" in item:
            return self._file(item)
        try:
            return self._sources.image(item["image"]) if "image" in item else self._sources.workspace(item["workspace"])
        except OSError as error:
            raise _unusable(error) from error

    def _file(self, item: dict[str, str]) -> list[str]:
        fd = self._memory("file", os.fsencode(item["text"]))
        self._spare.append(fd)
        return ["--perms", item["perms"], "--file", str(fd), item["dest"]]

    @staticmethod
    def _memory(name: str, content: bytes) -> int:
        fd = wire.to_memfd(name, content)
        os.set_inheritable(fd, True)
        return fd

    def _become_bwrap(self, args: int, joiners: list[int], stdio: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        for fd in joiners:
            os.write(fd, b"0")
        order = self._order
        binary = _program(order["bwrap"])  # before root is given up: it may be in a folder that only root reads
        env = {}
        if order.get("library"):
            library = _program(order["library"])
            os.set_inheritable(library, True)
            env["LD_PRELOAD"] = f"/proc/self/fd/{library}"
        os.umask(0o022)
        for name, value in order["rlimits"].items():
            if name != _LATE:
                resource.setrlimit(getattr(resource, name), (value, value))
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for fd in self._bwrap_ends:
            os.set_inheritable(fd, True)
        enter.become(order["uid"])
        enter.fresh_keyring()
        os.execve(binary, ["bwrap", "--args", str(args), "--", *order["command"]], env)

    def _read_init(self) -> int:
        while b"}" not in self._reported:
            part = os.read(self._status, 4096)
            if not part:
                os.waitpid(self.pid, 0)
                raise StartFailed(self._failure_reason())
            self._reported += part
        return int(json.loads(self._reported[: self._reported.index(b"}") + 1])["child-pid"])

    def failed(self) -> StartFailed | None:
        """After bwrap has ended: why the command never ran; None if it did."""
        while part := os.read(self._status, 4096):
            self._reported += part
        if b'"exit-code"' in self._reported:
            return None
        reason = self._failure_reason()
        code = 125 if "execvp" not in reason else 127 if "No such file" in reason else 126
        return StartFailed(reason.removeprefix("execvp "), code)

    def _failure_reason(self) -> str:
        message = os.read(self.stderr, 4096).decode("utf-8", "replace").strip()
        return message.removeprefix("bwrap: ") or "bwrap ended without a word"

    def release(self) -> None:
        """Set the limits that the command inherits, let it run, and wait until it does. Raises StartFailed."""
        self._check_mounts()
        if self._has_ended():
            return  # the caller finds out why
        self._limit_processes()
        before = self._command_line(self.init)
        os.write(self._release, b"\n")
        os.close(self._release)
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._has_ended():
                return  # it has already ended: the caller finds out how
            found = tree.children(self.init)
            if found and self._main_fd < 0:
                self._watch(found[0])
            if found and self._command_line(found[0]) not in (b"", before):
                self.main = found[0]
                return
            time.sleep(0.001)
        raise StartFailed(f"the command did not start in {_START_S:.0f} s")

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _check_mounts(self) -> None:
        """Compare what is mounted with what was opened, while nothing runs inside yet. Raises StartFailed."""
        try:
            self._sources.check(self.init, self._has_ended)
        except OSError as error:
            raise _unusable(error) from error
        finally:
            self._sources.close()

    def _watch(self, pid: int) -> None:
        try:
            self._main_fd = os.pidfd_open(pid)
        except ProcessLookupError:
            pass  # it has ended already

    def _limit_processes(self) -> None:
        """Limit the number of processes, from outside, once bwrap is in its own user namespace.

        Before that, all of the user's processes would count.

        This is done as the sandbox's user, since root may lack CAP_SYS_RESOURCE (in a container it does).
        """
        value = self._order["rlimits"].get(_LATE)
        if value is None:
            return
        pid = os.fork()
        if pid == 0:
            try:
                enter.become(self._order["uid"])
                resource.prlimit(self.init, resource.RLIMIT_NPROC, (value, value))
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 1)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            raise StartFailed(f"the limit of processes cannot be set: {os.strerror(code)}")

    @staticmethod
    def _command_line(pid: int) -> bytes:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return b""

    def namespaces(self) -> enter.Namespaces | None:
        """The sandbox's namespaces; None if it has ended already.

        They are those of the first process, which is bwrap's: the main command may be in namespaces of its own by now.
        """
        for pid in (self.init, self.main):
            try:
                return enter.Namespaces(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return None

    def true_status(self) -> int | None:
        """The main command's own wait status: bwrap turns a signal into a code above 128.

        The kernel still knows it, if it is new enough (Linux 6.15) and the command was seen alive.
        """
        return kernel.exit_status(self._main_fd) if self._main_fd >= 0 else None


def _unusable(error: OSError) -> StartFailed:
    """The error for a folder of the host that cannot be mounted."""
    hint = "another user may change this folder or one above it: use a copy that only you can write"
    changed = isinstance(error, mount_sources.SourceChanged)
    return StartFailed(f"{error.filename} cannot be mounted: {error.strerror}", hint=hint if changed else "")


def leave_keys() -> None:
    """Leave the keys of the user who started the sandbox. Raises StartFailed if the user may have no more."""
    try:
        kernel.new_session_keyring()
    except OSError as error:
        hint = "its user has too many keys: raise kernel.keys.maxkeys by sysctl, or look with `keyctl show`"
        raise StartFailed(
            f"it cannot have its own session keyring: {os.strerror(error.errno or 0)}", hint=hint
        ) from error


def exit_of(
    status: int, exact: int | None, requested: int | None, killed: bool | None, reason: str
) -> dict[str, object]:
    """How the main command ended, from bwrap's wait status and, if the kernel reports it, the command's.

    ``asked`` is the signal with which the console ended it. ``killed`` says whether the kernel killed one of its
    processes because memory ran out; None if the kernel does not report that.
    """
    monitor = os.waitstatus_to_exitcode(status)
    code = monitor if exact is None else os.waitstatus_to_exitcode(exact)
    number = -code if code < 0 else None
    if exact is None and code - 128 in signal.valid_signals():
        number = code - 128
    if requested is not None and monitor == -signal.SIGKILL:
        number = signal.SIGKILL
    oom = None if killed is None else killed and number in (None, signal.SIGKILL)
    return {
        "code": 128 + number if number else code,
        "signal": int(number) if number else None,
        "oom": oom,
        "reason": reason,
    }
