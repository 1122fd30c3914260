"""Which of several containers the tabs show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from sandbox_console.model.sandbox import Sandbox, SandboxRef


def containers_of(sandbox: Sandbox) -> Sequence[str]:
    """Return the names of a sandbox's containers, the main one first; none if its backend names none."""
    fact = next((one for one in sandbox.effective if one.field == "containers"), None)
    return fact.value.split(", ") if fact is not None else ()


class ChosenContainers:
    """The container that was chosen of each sandbox, for as long as the app runs."""

    def __init__(self) -> None:
        self._chosen: dict[SandboxRef, str] = {}

    def choose(self, sandbox: Sandbox, name: str) -> None:
        """Choose one by its name. The main one is what is shown without a choice."""
        self._chosen[sandbox.ref] = "" if name == containers_of(sandbox)[0] else name

    def of(self, sandbox: Sandbox) -> str:
        """Return the chosen container; an empty text is the main one."""
        name = self._chosen.get(sandbox.ref, "")
        return name if name in containers_of(sandbox) else ""

    def within(self, sandbox: Sandbox) -> Sandbox:
        """Return a sandbox whose ref names the chosen container."""
        name = self.of(sandbox)
        return structs.replace(sandbox, ref=structs.replace(sandbox.ref, container=name)) if name else sandbox
