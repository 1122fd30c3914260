"""The sandbox behind one ssh connection: what its sessions have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.guest import FileKind
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.shells import NO_SHELL, SHELLS
from sandbox_console.servers.ssh.host_block import OWN_USER
from sandbox_console.service import Consent, Console
from sandbox_console.service.sessions.brought_shell import BROUGHT_SHELL, programs_first

_ENV = ("LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR", "GIT_PROTOCOL")
_ENV_PREFIX = "LC_"
_LONGEST_VALUE = 4096


class Guest:
    """A sandbox, the user to be in it, and what the caller has agreed to."""

    def __init__(self, console: Console, sandbox: Sandbox, consent: Consent) -> None:
        self.console, self.sandbox, self.consent = console, sandbox, consent
        self.user: str | None = None
        self._shell = ""
        self._brought: str | None = None
        self._looking = asyncio.Lock()
        self._told: set[str] = set()

    @property
    def ref(self) -> SandboxRef:
        """The sandbox's reference."""
        return self.sandbox.ref

    def log_in(self, name: str) -> None:
        """Take the name that the client gave for the user in the sandbox."""
        self.user = None if name in (OWN_USER, "") else name

    @property
    def home(self) -> str:
        """The folder in which commands start, from which a client's relative paths count."""
        said = next((fact.value for fact in self.sandbox.effective if fact.field == "workdir"), "")
        return said if said.startswith("/") else "/"

    async def shell(self) -> str:
        """The path of the shell that runs commands, looked for once. Raises Unsupported if the sandbox has none."""
        async with self._looking:  # a hundred channels may open at once
            self._shell = self._shell or await self._found()
        return self._shell

    async def _found(self) -> str:
        """Look one by one: each look costs a call, on bubblewrap a process, and most images have one of the first."""
        for path in dict.fromkeys(("/bin/bash", "/bin/sh", *SHELLS)):
            try:
                info = await self.console.inside.stat(self.ref, path)
            except NotFound:
                continue
            except Unsupported:  # the backend cannot look
                return "/bin/sh"
            if info.kind in (FileKind.LINK, FileKind.FILE):
                return path
        if found := await self.brought():
            return found
        name = self.sandbox.name
        hint = f"sandbox-console shell {name} --busybox brings one; sandbox-console exec {name} -- CMD needs none"
        raise Unsupported(NO_SHELL, hint=hint)

    async def brought(self) -> str:
        """The path of the shell that ``shell --busybox`` has brought, tried once; empty if there is none."""
        if self._brought is None:
            tried = Exec(self.ref, (BROUGHT_SHELL, "-c", ":"), user=self.user)
            result = await self.console.perform(tried, consent=self.consent).result()
            self._brought = BROUGHT_SHELL if result.exit_code == 0 else ""
        return self._brought

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a client that are passed on, and where the programs of a brought shell are."""
        return accepted(given) | (programs_first(self._brought) if self._brought else {})

    def news(self, without: Sequence[str]) -> Sequence[str]:
        """Those of the secrets that a session is without which have not been told on this connection."""
        news = [name for name in without if name not in self._told]
        self._told.update(news)
        return news


def accepted(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a client that are passed on: those of language, time and colour, and git's protocol.

    Others would change what programs in the sandbox run (``LD_PRELOAD``), or bring secrets in (``SendEnv *``).
    """
    return {
        name: value
        for name, value in env.items()
        if (name in _ENV or name.startswith(_ENV_PREFIX)) and len(value) <= _LONGEST_VALUE and value.isprintable()
    }
