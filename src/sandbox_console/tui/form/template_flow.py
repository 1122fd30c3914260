"""Keeps a sandbox's spec as a template, and begins the form from a template, a sandbox, a docker run line or a file."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from textual.app import App

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.hostfs.files import read_small
from sandbox_console.model.safe_toml import parse_toml
from sandbox_console.model.sandbox import Sandbox, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.service.imports.compose import read_compose
from sandbox_console.service.imports.container import read_sandbox
from sandbox_console.service.imports.devcontainer import read_devcontainer
from sandbox_console.service.imports.docker_run import read_docker_run
from sandbox_console.service.imports.imported import Imported
from sandbox_console.service.templates import Template
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_draft import Draft
from sandbox_console.tui.text.form_values import texts_of
from sandbox_console.tui.text.formatting import error_words, shown_name

Read = Callable[[str], Awaitable[Draft]]
_LONGEST = 1 << 20
_SAID = 60
_LINE, _FILE, _SELECTED = "\0line", "\0file", "\0selected"
"""Choices that no template's name equals."""


class TemplateFlow:
    """The steps from a key to a stored template, or to what the form begins with. Each runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console) -> None:
        self._app, self._console = app, console

    async def save(self, sandbox: Sandbox) -> None:
        """Ask for a name, and store the sandbox's spec under it. Values that sound secret are left out, and named."""
        name = await self._app.push_screen_wait(
            AskScreen(
                f"A template of {shown_name(sandbox)}", "a name, such as python-3.12", sandbox.name,
                help_text="Its spec is stored without its name and without values that sound secret.",
                command=lambda typed: shlex.join(
                    ["sandbox-console", "templates", "save", typed or "TEMPLATE", str(sandbox.ref)]
                ),
            )
        )  # fmt: skip
        if not name:
            return
        try:
            found = await self._console.inspect(sandbox.ref)
            left = await self._console.templates.save(name, spec_of(found).to_dict())
        except ConsoleError as error:
            self._app.notify(error_words(error), title="template", severity="error")
            return
        without = f" Left out, as they sound secret: {', '.join(left)}." if left else ""
        self._app.notify(f"Stored the template {name}.{without}", title="template")

    async def begin(self, selected: Sandbox | None) -> Draft | None:
        """Ask what the form begins with, such as the selected sandbox.

        Returns None if nothing was chosen, or if it cannot be used.
        """
        try:
            choice = await self._app.push_screen_wait(MenuScreen("New sandbox from", await self._choices(selected)))
            match choice:
                case "":
                    return None
                case str() if choice == _SELECTED and selected is not None:
                    return await self._sandbox(selected)
                case str() if choice == _LINE:
                    return await self._typed("A docker run line", "docker run -p 8080:80 python:3.12", self._line)
                case str() if choice == _FILE:
                    help_text = "compose.yaml (with # and a service's name), devcontainer.json, or a spec in TOML"
                    return await self._typed("A file", "compose.yaml#web", self._file, help_text)
            template = await asyncio.to_thread(self._console.templates.get, choice)
            return _draft(f"the template {choice}", Imported(dict(template.fields)))
        except ConsoleError as error:
            self._app.notify(error.message, title="new from", severity="error")
            return None

    async def _choices(self, selected: Sandbox | None) -> list[Choice]:
        found = await asyncio.to_thread(self._console.templates.every)
        templates = [
            Choice(template.name, template.name, "", template.problem, detail=f"template: {_summary(template)}")
            for template in found
        ]
        line = Choice(_LINE, "docker run", "", detail="a line as you would type it; it is not run")
        file = Choice(_FILE, "A file", "", detail="compose.yaml, devcontainer.json, or a spec")
        own = [Choice(_SELECTED, shown_name(one), "", detail="this sandbox, as it is") for one in [selected] if one]
        return [*templates, *own, line, file]

    async def _sandbox(self, selected: Sandbox) -> Draft:
        sandbox, raw = await self._console.inspect(selected.ref), None
        if sandbox.spec is None:
            with suppress(ConsoleError):  # read_sandbox says that nothing is known
                raw = await self._console.inside.raw(sandbox.ref)
        imported = read_sandbox(sandbox, raw)
        imported.fields.pop("name", None)  # it is taken
        host = sandbox.ref.backend, sandbox.ref.host
        return _draft(shown_name(sandbox), imported)._replace(host=host)

    async def _typed(self, title: str, hint: str, read: Read, help_text: str = "") -> Draft | None:
        text = await self._app.push_screen_wait(AskScreen(title, hint, help_text=help_text))
        return await read(text) if text else None

    async def _line(self, text: str) -> Draft:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"the line cannot be split into words: {error}") from None
        return _draft("the docker run line", await asyncio.to_thread(read_docker_run, words, Path.cwd()))

    async def _file(self, text: str) -> Draft:
        name, _, service = text.partition("#")
        guest_folders = await self._console.ground()

        def read(path: Path) -> str:
            try:
                return read_small(path, guest_folders, _LONGEST).decode("utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                cause = getattr(error, "strerror", None) or "it is not UTF-8"
                raise UsageError(f"{path} cannot be read: {cause}") from None

        def imported() -> Imported:
            path = Path(name).expanduser()
            content = read(path)
            match path.suffix:
                case ".yaml" | ".yml":
                    return read_compose(path, content, service, read, os.environ)
                case ".json":
                    return read_devcontainer(path.absolute(), content)
            try:
                return Imported(parse_toml(content))
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{path} is not TOML: {error}") from None

        return _draft(name, await asyncio.to_thread(imported))


def _summary(template: Template) -> str:
    """The template's image, and its command as far as there is room."""
    command = template.fields.get("command") or []
    return " ".join(map(str, [template.fields.get("image", "no image"), *command]))[:_SAID]


def _draft(source: str, imported: Imported) -> Draft:
    """What was read, as texts of the form, with a note. Raises InvalidSpec for a field of the wrong type."""
    texts = texts_of(SandboxSpec.from_dict({"name": "", **imported.fields}))
    left = "".join(f" Not taken over: {clean(source_key, cap=80)}: {reason}." for source_key, reason in imported.left)
    return Draft({name: text for name, text in texts.items() if text}, note=f"Filled in from {clean(source)}.{left}")
