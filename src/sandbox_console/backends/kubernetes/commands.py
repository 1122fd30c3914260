"""Commands in the main container of a running Pod, with the image's ``env`` and ``sh``."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from sandbox_console.backends.common.guest_files import answer
from sandbox_console.backends.common.messages import not_running
from sandbox_console.backends.kubernetes.causes import main_container, status_of
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.exec_socket import open_exec
from sandbox_console.backends.kubernetes.inventory import Target
from sandbox_console.backends.kubernetes.objects import Pod
from sandbox_console.backends.kubernetes.process import KubernetesProcess
from sandbox_console.errors import Unsupported
from sandbox_console.model.shells import NO_SHELL, NO_SHELL_HINT, SHELLS

_MARK = "SANDBOX_CONSOLE_EXEC"
_IN_FOLDER = 'cd -- "$0" || exit 126; exec env "$@"'
_SWEEP = """
for again in 1 2; do for p in /proc/[0-9]*; do
  grep -q "$1" $p/environ && kill -9 ${p#/proc/}
done; done 2>/dev/null
:
"""
"""Twice: a process may fork while the list is read."""


class Guest(Struct, frozen=True):
    """The main container of a running Pod."""

    cluster: Cluster
    pod: Pod
    container: str

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: bool = False,
        tty: bool = False,
    ) -> KubernetesProcess:
        """Start a command. Its variables are arguments of ``env``, as Kubernetes has no other place for them."""
        mark = f"{_MARK}={secrets.token_hex(8)}"
        words = [mark, *(f"{key}={value}" for key, value in (env or {}).items()), *argv]
        whole = ["sh", "-c", _IN_FOLDER, workdir, *words] if workdir else ["env", *words]
        socket = await open_exec(self.cluster, self.pod, self.container, whole, stdin=stdin, tty=tty)
        return KubernetesProcess(socket, partial(self._sweep, mark))

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end. Raises BackendError if it takes too long."""
        socket = await open_exec(
            self.cluster, self.pod, self.container, ["sh", "-c", script, "sh", *words], stdin=False
        )
        return await answer(KubernetesProcess(socket, _nothing), self.pod.metadata.name)

    async def best_shell(self) -> str:
        """The best shell of the image. Raises Unsupported if it has none."""
        code, out, _ = await self.ask('for s; do [ -x "$s" ] && { echo "$s"; exit; }; done; exit 1', *SHELLS)
        if code != 0:
            raise Unsupported(NO_SHELL, hint=NO_SHELL_HINT)
        return out.decode("utf-8", "replace").strip()

    async def _sweep(self, mark: str) -> None:
        await self.ask(_SWEEP, mark)


async def _nothing() -> None: ...


def guest(cluster: Cluster, target: Target) -> Guest:
    """The main container of a place, or the chosen one. Raises Conflict if it does not run."""
    pod = target.pod
    main = main_container(pod) if pod is not None else None
    name = target.container or (main.name if main is not None else "")
    status = status_of(pod, name) if pod is not None else None
    if pod is None or status is None or status.state.running is None:
        raise not_running(f"{target.meta.name}, container {name}" if target.container else target.meta.name)
    if pod.metadata.deletion_timestamp is not None:
        raise not_running(target.meta.name, "stopping")
    return Guest(cluster, pod, name)
