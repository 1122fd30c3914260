"""Shows why the selected sandbox is not running, in two lines at the top of the detail."""

from __future__ import annotations

from functools import partial

from textual.content import Content
from textual.widgets import Static
from textual.worker import Worker

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.model.verdict import Verdict
from sandbox_console.service import Console


class WhyBar(Static):
    """The reason. It is empty and has no height while the sandbox is running."""

    DEFAULT_CSS = """
    WhyBar { height: auto; max-height: 3; padding: 0 1; display: none; background: $surface; }
    WhyBar.-on { display: block; }
    WhyBar.-whole { max-height: 60%; }
    """

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._service = console
        self._shown: tuple[object, ...] = ()

    def show(self, sandbox: Sandbox | None, version: object) -> None:
        """Show the verdict on a sandbox. A different ``version`` means that the audit log may have more on it."""
        wanted = (sandbox, version)
        if wanted != self._shown:
            self._shown = wanted
            _: Worker[None] = self.run_worker(partial(self._judge, sandbox), exclusive=True, group="why")

    async def _judge(self, sandbox: Sandbox | None) -> None:
        from sandbox_console.service.incident.cause import judge

        verdict = await judge(self._service, sandbox) if sandbox is not None else None
        self.set_class(verdict is not None, "-on")
        if verdict is not None:
            self.update(why_words(verdict))


def why_words(verdict: Verdict) -> Content:
    """Return the verdict, followed by its evidence."""
    style = "bold $text-warning" if verdict.sure else "bold $text-error"
    return Content.assemble(
        ("Why: ", "bold"), (clean(verdict.headline, cap=300), style),
        (f"\n     {clean(' · '.join(verdict.evidence), cap=600)}" if verdict.evidence else "", "$dim"),
    )  # fmt: skip
