"""The few system calls that Python 3.11 lacks, and how a supervisor detaches from the process that started it."""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000  # linux/sched.h
_NS_GET_USERNS = 0xB701  # linux/nsfs.h: _IO(0xb7, 1)
_SECCOMP_MODE_FILTER = 2  # linux/seccomp.h
_KEYCTL = {"x86_64": 250, "ppc64le": 271, "s390x": 280}  # the call's number; 219 on every newer architecture
_KEYCTL_JOIN_SESSION_KEYRING = 1  # linux/keyctl.h
_CAP_VERSION_3 = 0x20080522  # linux/capability.h
_PIDFD_GET_INFO = 0xC040FF0B  # linux/pidfd.h: _IOWR(0xFF, 11, struct pidfd_info), 64 bytes; Linux 6.13
_PIDFD_INFO_EXIT = 1 << 3  # Linux 6.15

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")


def setns(fd: int) -> None:
    """Join the namespace of ``fd``."""
    _check(_libc.setns(fd, 0), "setns")


def own_user_namespace() -> None:
    """Enter a new user namespace in which this user is mapped to itself, and may change its root."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def detach() -> int:
    """Leave the console's process and session. Returns a copy of stdout; stdin, stdout and stderr are then closed."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stdout = os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return stdout


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def name_process(name: str) -> None:
    """Set the process's /proc/PID/comm, which no other process can set; at most 15 bytes."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl name")


def keep_to_itself() -> None:
    """Forbid other processes of this user to read this process's memory, and disable its core dumps.

    Its files in /proc belong to root from then on, so call this after writing a uid_map.
    """
    prctl(PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def new_session_keyring() -> None:
    """Leave the keys of the user who started this process. Raises OSError if the user may have no more keys.

    A kernel without keys has none to leave. If another filter refuses the call, the guest inherits that filter too.
    """
    number = _KEYCTL.get(os.uname().machine, 219)
    if _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EPERM):
            raise OSError(code, f"a new session keyring: {os.strerror(code)}")


def filter_calls(program: bytes) -> None:
    """Hold this process and its children to a system call filter for good; no_new_privs must be set."""
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions (8 bytes each) and their address.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), header, 0, 0), "seccomp")


def owner_namespace(fd: int) -> int:
    """A descriptor of the user namespace that owns the namespace of ``fd``."""
    return fcntl.ioctl(fd, _NS_GET_USERNS)


def drop_privileges() -> None:
    """Drop all capabilities from all sets, and forbid new privileges through an exec."""
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # EINVAL: past the last one that this kernel knows
    header = struct.pack("Ii", _CAP_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def exit_status(pidfd: int) -> int | None:
    """The wait status of a process that has ended, child or not; None if the kernel does not report it."""
    info = bytearray(struct.pack("Q", _PIDFD_INFO_EXIT) + bytes(56))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask = struct.unpack_from("Q", info)[0]
    return struct.unpack_from("i", info, 60)[0] if mask & _PIDFD_INFO_EXIT else None
