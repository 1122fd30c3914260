"""Starts a command in a running sandbox, whether the console runs as root or as an ordinary user.

Three processes are forked from the supervisor, so that nothing is imported on the far side of a namespace: the middle
one becomes the sandbox's user, joins the namespaces and ends; the helper is inside the PID namespace, adopts every
orphan of the command (so that a daemon does not escape a kill) and reports how the command ended; the command is its
child. Middle and helper are not dumpable: the guest cannot trace them. A helper may be started before there is a
command, which then saves it two forks (``spare``).
"""

import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import termios

from . import kernel, tree, wire

_SECRETS = "/run/secrets"
_FD_MOST = 1 << 20
_HELPER = "sandbox-helper"
_STREAMS = 3
_JOINED = ("mnt", "net", "ipc", "uts", "cgroup", "pid")


class Namespaces:
    """Descriptors of a running sandbox's namespaces: first the owner of the others, last its own user namespace."""

    def __init__(self, pid: int) -> None:
        self._fds = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _JOINED]
        self._fds.insert(0, kernel.owner_namespace(self._fds[-1]))
        self._inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        self._nested = os.fstat(self._inner).st_ino != os.fstat(self._fds[0]).st_ino

    def join(self) -> None:
        """Join the owner and what it owns; children are then in the PID namespace."""
        for fd in self._fds:
            kernel.setns(fd)

    def join_inner(self) -> None:
        """Join the user namespace that the guest's processes are in.

        The command does this itself, after its last fork: a sandbox that is full of processes allows no fork in it.
        """
        if self._nested:
            kernel.setns(self._inner)

    @property
    def for_files(self) -> tuple[int, ...]:
        """What is needed to see the sandbox's files as its user: the owner, the mounts, the user namespace."""
        return self._fds[0], self._fds[1], self._inner

    @property
    def fds(self) -> list[int]:
        """All descriptors."""
        return [*self._fds, self._inner]


class Confinement:
    """The confinement of every command of a sandbox: its user, limits and system call filter, and where it runs."""

    def __init__(self, launch: dict, spaces: Namespaces, joiners: list[int]) -> None:  # type: ignore[type-arg]
        self.uid: int | None = launch["uid"]
        self.rlimits: dict[str, int] = launch["rlimits"]
        self.filter = bytes.fromhex(launch["seccomp"])
        self.spaces, self.joiners = spaces, joiners


class ExecRequest:
    """A command to start: argv candidates, environment, folder, and the limits that hold inside."""

    def __init__(self, message: dict, confinement: Confinement) -> None:  # type: ignore[type-arg]
        self.candidates: list[list[str]] = message["candidates"]
        self.env: dict[str, str] = message["env"]
        self.workdir: str = message["workdir"]
        self.tty: list[int] | None = message.get("tty")
        self.secrets: dict[str, str] = message.get("secrets") or {}
        self.confinement = confinement


def become(uid: int | None) -> None:
    """Give up root for a sandbox's user; an ordinary user stays the same."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def fresh_keyring() -> None:
    """A session keyring for a guest; beyond the user's quota it gets the supervisor's, which is just as empty."""
    try:
        kernel.new_session_keyring()
    except OSError:
        pass


def plain_signals() -> None:
    """The signals that a program expects at its start: nothing ignored, nothing blocked."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def close_all_but(keep: list[int]) -> None:
    """Close every descriptor that is not named."""
    first = 0
    for fd in sorted(set(keep)):
        if fd > first:  # an empty range would be taken for one without an end
            os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, max(first + 1, _FD_MOST))


def start(
    confinement: Confinement, request: ExecRequest | None, stdio: list[int]
) -> tuple[socket.socket, socket.socket]:
    """Start a command. Returns the socket of the helper's reports, and the one for the request.

    If either is closed before the command has started, nothing is left of it.
    """
    report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests, awaited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, awaited:
        if os.fork() == 0:
            try:
                _middle(confinement, request or awaited, stdio, theirs)
            except BaseException as error:  # noqa: BLE001 - nothing may return into the supervisor's loop
                wire.send(theirs, {"failed": 125, "reason": f"cannot enter the sandbox: {error}"})
            finally:
                os._exit(125)
    return report, requests


def _middle(
    confinement: Confinement, request: ExecRequest | socket.socket, stdio: list[int], report: socket.socket
) -> None:
    signal.set_wakeup_fd(-1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, fd in enumerate(stdio):
        os.dup2(fd, number)
    awaited = [] if isinstance(request, ExecRequest) else [request.fileno()]
    close_all_but([0, 1, 2, report.fileno(), *awaited, *confinement.spaces.fds, *confinement.joiners])
    become(confinement.uid)
    kernel.keep_to_itself()
    fresh_keyring()
    confinement.spaces.join()
    try:
        pid = os.fork()
    except OSError as error:
        if error.errno == errno.ENOMEM:  # as fork(2) reports it for a PID namespace whose first process has ended
            wire.send(report, {"error": "it has ended"})
            os._exit(0)
        raise
    if pid == 0:
        try:
            _helper(confinement, request, report)
        except BaseException as error:  # noqa: BLE001 - as above
            wire.send(report, {"failed": 125, "reason": f"cannot start a command in the sandbox: {error}"})
        finally:
            os._exit(125)
    wire.send(report, {"helper": pid})
    os._exit(0)


def _helper(confinement: Confinement, request: ExecRequest | socket.socket, report: socket.socket) -> None:
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.keep_to_itself()  # again: if fs.suid_dumpable is 1, joining a namespace made it readable
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    kernel.name_process(_HELPER if isinstance(request, ExecRequest) else tree.WAITS)
    tty = request.tty if isinstance(request, ExecRequest) else None
    if tty:
        _open_terminal(tty, report)
    failure, report_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            awaited = [] if isinstance(request, ExecRequest) else [request.fileno()]
            _confine(confinement, [0, 1, 2, report_end, *awaited, *confinement.joiners], terminal=bool(tty))
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # as above, for the guest's own user namespace
            code, reason = _command(request if isinstance(request, ExecRequest) else _awaited(confinement, request))
        except BaseException as error:  # noqa: BLE001 - as above
            code, reason = 125, str(error)
        os.write(report_end, json.dumps({"failed": code, "reason": reason}).encode())
        os._exit(code)
    kernel.drop_privileges()
    close_all_but([report.fileno(), failure])
    signal.signal(signal.SIGCHLD, lambda *_: _go_on(pid, failure))
    _go_on(pid, failure)
    text = os.read(failure, wire.PACKET)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.name_process(_HELPER)
    wire.send(report, json.loads(text) if text else {"started": True, "pid": pid})
    while True:
        try:
            one, status = os.wait()
        except ChildProcessError:
            os._exit(0)
        if one == pid and not text:
            wire.send(report, {"exit": status})


def _go_on(pid: int, failure: int) -> None:
    """Continue a process that was stopped.

    A command that has not started yet has the guest's user id, so the guest can stop it.
    """
    try:
        begun = select.select([failure], [], [], 0)[0]
        if not begun and os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG):
            os.kill(pid, signal.SIGCONT)
    except ChildProcessError:
        pass  # it has ended, as the caller will see


def _open_terminal(size: list[int], report: socket.socket) -> None:
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    wire.send(report, {"terminal": True}, (master,))
    os.close(master)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.close(slave)


def _confine(confinement: Confinement, keep: list[int], *, terminal: bool) -> None:
    """Confine a command, and close every descriptor that it may not keep.

    The filter comes last: it would refuse what is done before it.
    """
    confinement.spaces.join_inner()
    kernel.drop_privileges()
    os.setsid()
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(0o022)
    for name, value in confinement.rlimits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    plain_signals()
    close_all_but(keep)
    if confinement.filter:
        kernel.filter_calls(confinement.filter)


def _awaited(confinement: Confinement, requests: socket.socket) -> ExecRequest:
    """Wait for a request and its three streams; end if none comes.

    A guest can lower the descriptor limit of the waiting process, so that the streams do not arrive. Raises OSError
    then.
    """
    message, fds = wire.receive(requests)
    if message is None:
        os._exit(0)
    if len(fds) != _STREAMS:
        raise OSError("its streams did not arrive: something in the sandbox has lowered its limit of open files")
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    return ExecRequest(message, confinement)


def _command(request: ExecRequest) -> tuple[int, str]:
    """Become the command, with the rights of any program in the sandbox; returns only with the reason for a failure.

    It joins the cgroups only now: before there is a command, nothing counts as the sandbox's.
    """
    for fd in request.confinement.joiners:
        os.write(fd, b"0")
    try:
        _put_secrets(request.secrets)
    except OSError as error:
        return 125, f"a secret's file cannot be written in {_SECRETS}: {os.strerror(error.errno or 0)}"
    try:
        os.chdir(request.workdir)
    except OSError as error:
        return 126, f"workdir {request.workdir}: {os.strerror(error.errno or 0)}"
    outcome = 127, "no command"
    for argv in request.candidates:
        outcome = _execute(argv, request.env)
    return outcome


def _put_secrets(secrets: dict[str, str]) -> None:
    """Write the files of secrets again: a guest may have removed one, or its value may have changed since the start."""
    if secrets and not os.path.isdir(_SECRETS):
        os.mkdir(_SECRETS, 0o700)
    for name, value in secrets.items():
        fresh = f"{_SECRETS}/.{name}.{os.getpid()}"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
        os.write(fd, os.fsencode(value))
        os.close(fd)
        os.rename(fresh, f"{_SECRETS}/{name}")


def _execute(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Replace this process; returns only with the reason for a failure. It avoids ``os.execvpe``, which imports."""
    name = argv[0]
    denied = ""
    for path in [name] if "/" in name else [f"{folder}/{name}" for folder in env.get("PATH", "").split(":") if folder]:
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):
                return 127, f"{path}: its interpreter is not in the sandbox"
        except OSError as error:
            denied = f"{path}: {os.strerror(error.errno or 0)}"
    return (126, denied) if denied else (127, f"{name}: not found in the sandbox")
