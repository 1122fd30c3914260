"""Creates the control groups of a sandbox, version 1 or 2, where this process may write."""

import errno
import os
import signal
import time
from collections.abc import Callable

CONTROLLERS = ("memory", "pids", "cpu", "freezer", "cpuacct")
CPU_PERIOD_US = 100_000
_PREFIX = "sandbox-console-"


class CgroupParents:
    """Where groups can be made: a folder for each controller, and the reason for each missing one."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.version = 1


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    rows = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _source, options = right.split()[:3]
            if kind in ("cgroup", "cgroup2"):
                parts = left.split()
                rows.append((kind, parts[3], parts[4], set(options.split(","))))
    return rows


def _own_paths() -> dict[str, str]:
    paths = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _number, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def _below(mount: str, root: str, path: str) -> str:
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    return mount.rstrip("/") + "/" + inside.strip("/") if inside.strip("/") else mount


def _try_make(parent: str, wanted: str) -> str:
    """Make and remove a group; returns the reason if that fails."""
    path = f"{parent}/{_PREFIX}probe-{os.getpid()}"
    try:
        os.mkdir(path)
    except OSError as error:
        return f"{parent} is not writable ({os.strerror(error.errno or 0)})"
    try:
        return "" if os.path.exists(f"{path}/{wanted}") else f"the controller is not enabled in {parent}"
    finally:
        os.rmdir(path)


def _unified_parent(mount: str, own: str) -> tuple[str, set[str]]:
    """The nearest group above this process in which groups can be made, and the controllers that they get."""
    at = own
    while True:
        if os.access(at, os.W_OK) and os.access(f"{at}/cgroup.procs", os.W_OK):
            for controller in ("memory", "pids", "cpu"):
                try:
                    with open(f"{at}/cgroup.subtree_control", "w") as file:
                        file.write(f"+{controller}")
                except OSError:
                    pass  # EBUSY: it contains processes itself; its parent may work
            with open(f"{at}/cgroup.subtree_control") as file:
                got = set(file.read().split())
            if got or at == mount:
                return at, got
        if at == mount:
            return "", set()
        at = os.path.dirname(at)


def find() -> CgroupParents:
    """Find out where this process can make groups. Makes and removes a probe in each place."""
    found = CgroupParents()
    own = _own_paths()
    probes = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
    probes |= {"freezer": "freezer.state", "cpuacct": "cpuacct.usage"}
    for kind, root, mount, options in _mounts():
        if kind == "cgroup":
            for controller in options & set(CONTROLLERS):
                parent = _below(mount, root, own.get(controller, "/"))
                reason = _try_make(parent, probes[controller])
                if reason:
                    found.reasons[controller] = reason
                else:
                    found.parents[controller] = parent
        elif not any(row[0] == "cgroup" for row in _mounts()):
            _find_unified(found, mount, _below(mount, root, own.get("", "/")))
    for controller in CONTROLLERS:
        if controller not in found.parents:
            found.reasons.setdefault(controller, "no cgroup of it is mounted")
    return found


def _find_unified(found: CgroupParents, mount: str, own: str) -> None:
    found.version = 2
    parent, got = _unified_parent(mount, own)
    for controller in CONTROLLERS:
        if not parent:
            found.reasons[controller] = f"no cgroup from {own} upward is writable"
        elif controller in got or controller in ("freezer", "cpuacct"):
            found.parents[controller] = parent
        else:
            found.reasons[controller] = f"the controller is not delegated to {parent}"


def write(path: str, text: str) -> None:
    """Write one of the kernel's values."""
    with open(path, "w") as file:
        file.write(text)


def read(path: str) -> str:
    """Read one of the kernel's values; empty if it does not exist."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


_MEMORY_FILES = ("memory.max_usage_in_bytes", "memory.limit_in_bytes")


class Group:
    """The groups of one sandbox: a folder for each controller (one for all of them in version 2)."""

    def __init__(self, version: int, folders: dict[str, str]) -> None:
        self.version = version
        self.folders = folders

    @classmethod
    def make(cls, found: CgroupParents, identity: str) -> "Group":
        """Make the folders. Raises OSError."""
        folders = {name: f"{parent}/{_PREFIX}{identity}" for name, parent in found.parents.items()}
        for path in set(folders.values()):
            os.makedirs(path, exist_ok=True)
        return cls(found.version, folders)

    def limit(self, *, memory: int | None, pids: int | None, cpus: float | None) -> None:
        """Set limits: bytes, processes, vCPUs. None leaves a limit as it is; limits without a folder are skipped."""
        if memory is not None and "memory" in self.folders:
            self._limit_memory(self.folders["memory"], memory)
        if pids is not None and "pids" in self.folders:
            write(f"{self.folders['pids']}/pids.max", str(pids))
        if cpus is not None and "cpu" in self.folders:
            quota = max(1000, int(cpus * CPU_PERIOD_US))  # 1 ms is the least that the kernel accepts
            name, text = (
                ("cpu.max", f"{quota} {CPU_PERIOD_US}") if self.version == 2 else ("cpu.cfs_quota_us", str(quota))
            )
            write(f"{self.folders['cpu']}/{name}", text)

    def _limit_memory(self, folder: str, memory: int) -> None:
        if self.version == 2:
            write(f"{folder}/memory.max", str(memory))
            if os.path.exists(f"{folder}/memory.swap.max"):
                write(f"{folder}/memory.swap.max", "0")
            return
        both = [f"{folder}/memory.limit_in_bytes", f"{folder}/memory.memsw.limit_in_bytes"]
        if not os.path.exists(both[1]):
            both.pop()
        try:
            for path in both:
                write(path, str(memory))
        except OSError:  # memory may not exceed memory+swap: growing needs the other order
            for path in reversed(both):
                write(path, str(memory))

    def joiners(self) -> list[int]:
        """Descriptors by which a single-threaded process joins, writing ``0``, even without the right to open them.

        ``tasks`` moves the thread that writes. For ``cgroup.procs`` the kernel blocks every fork and exit of this
        machine, which takes until the next RCU grace period; version 2 has no other file for a group with controllers.
        """
        file = "cgroup.procs" if self.version == 2 else "tasks"
        return [os.open(f"{path}/{file}", os.O_WRONLY | os.O_CLOEXEC) for path in set(self.folders.values())]

    @property
    def can_freeze(self) -> bool:
        """Whether the kernel can pause the groups."""
        return "freezer" in self.folders

    def freeze(self, frozen: bool) -> None:
        """Freeze or thaw, and wait until that is done. Raises TimeoutError after 5 s, and then nothing is frozen."""
        try:
            self._await(lambda: self._frozen(frozen))
        except TimeoutError:
            self._frozen(False)
            raise

    def _frozen(self, frozen: bool) -> bool:
        """Request the state from the kernel, and return whether it is reached.

        Version 1 skips a process on its way into vfork and then never gets there, unless the request is repeated.
        """
        folder = self.folders["freezer"]
        if self.version == 2:
            write(f"{folder}/cgroup.freeze", str(int(frozen)))
            return f"frozen {int(frozen)}" in read(f"{folder}/cgroup.events")
        word = "FROZEN" if frozen else "THAWED"
        write(f"{folder}/freezer.state", word)
        return read(f"{folder}/freezer.state").strip() == word

    @staticmethod
    def _await(done: Callable[[], bool]) -> None:
        until = time.monotonic() + 5
        while not done():
            if time.monotonic() > until:
                raise TimeoutError("the kernel did not freeze the sandbox's processes in 5 s")
            time.sleep(0.002)

    def oom_kills(self) -> int | None:
        """How many processes the kernel killed because memory ran out; None if it does not report that."""
        folder = self.folders.get("memory")
        if not folder:
            return None
        text = read(f"{folder}/memory.events" if self.version == 2 else f"{folder}/memory.oom_control")
        for line in text.splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return None

    def memory(self) -> dict[str, str]:
        """The most memory that was used and the limit, in MiB, as far as the kernel reports them."""
        folder = self.folders.get("memory", "")
        peak, limit = ("memory.peak", "memory.max") if self.version == 2 else _MEMORY_FILES
        found = {"peak": read(f"{folder}/{peak}").strip(), "limit": read(f"{folder}/{limit}").strip()}
        return {name: f"{int(text) >> 20} MiB" for name, text in found.items() if text.isdigit()}

    def kill(self) -> None:
        """Kill what is in the groups, frozen or not; for a sandbox whose supervisor is gone."""
        if os.path.isdir(self.folders.get("freezer", "")):
            self._frozen(False)
        for path in set(self.folders.values()):
            for pid in read(f"{path}/cgroup.procs").split():
                try:
                    if int(pid) > 1:  # 0 stands for a process outside our PID namespace, and would mean our own group
                        os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def remove(self) -> None:
        """Remove the folders; waits up to 2 s for the last processes to leave them."""
        for path in set(self.folders.values()):
            for _ in range(200):
                try:
                    os.rmdir(path)
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY:
                        raise
                    time.sleep(0.01)
                else:
                    break
