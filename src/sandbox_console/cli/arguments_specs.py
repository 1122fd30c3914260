"""The arguments of the verbs that make a sandbox from a spec, and of what a spec is read from."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from sandbox_console.model.spec_fields import FIELDS, Kind

_Add = Callable[[Any, str, str], argparse.ArgumentParser]
_NAME = "a name, backend:name, or backend/host/id"


def add(verbs: Any, verb: _Add) -> None:
    """Add all of them. ``verb`` adds one with the common options."""
    _add_making(verbs, verb)
    _add_templates(verbs, verb)
    _add_folder(verbs, verb)
    _add_drift(verbs, verb)
    _add_import(verbs, verb)


def _add_making(verbs: Any, verb: _Add) -> None:
    create = verb(verbs, "create", "create a sandbox and start it; a command may follow --")
    create.add_argument("name", metavar="NAME", nargs="?", help="its name; by default the one in the file")
    create.add_argument("--no-start", action="store_true", help="create it without starting it")
    create.add_argument("--template", metavar="T", help="start from a template; the file and the options change it")
    _add_spec(create)
    create.add_argument("--dry-run", action="store_true", help="say what would happen, but do nothing")
    update = verb(verbs, "update", "change sandboxes' specs: live if possible, otherwise by recreating them")
    update.add_argument("names", metavar="NAME", nargs="*", help=_NAME)
    update.add_argument("--with-label", metavar="K=V", action="append", help="change all of this console with a label")
    update.add_argument("--name", metavar="NEW", dest="rename", help="rename it")
    update.add_argument("--unset", metavar="FIELD", action="append", default=[], help="reset a field to its default")
    _add_spec(update)
    update.add_argument("--commit", action="store_true", help="before one is recreated, make an image of its files")
    update.add_argument("--dry-run", action="store_true", help="print the plan and what is lost, but do nothing")


def _add_spec(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("spec").add_argument
    add("-f", "--file", metavar="FILE", help="a spec in TOML or JSON; - is stdin; options override it")
    for field in FIELDS:
        if not field.option:
            continue
        names = [*([f"-{field.letter}"] if field.letter else []), f"--{field.option}"]
        match field.kind:
            case Kind.FLAG:
                add(*names, action="store_true", default=None, help=field.help)
            case Kind.LIST | Kind.TABLE:
                add(*names, metavar=field.metavar, action="append", help=field.help)
            case _:
                add(*names, metavar=field.metavar, choices=field.choices or None, help=field.help)


def _add_templates(verbs: Any, verb: _Add) -> None:
    templates = verb(verbs, "templates", "specs that are kept under a name, to create sandboxes from")
    verbs = templates.add_subparsers(dest="what", metavar="VERB", required=True)
    verb(verbs, "ls", "list templates, and say what is wrong with those that cannot be used")
    verb(verbs, "show", "print a template as TOML").add_argument("template", metavar="TEMPLATE", help="its name")
    save = verb(verbs, "save", "keep a spec as a template: a sandbox's, or that of a file and options")
    save.add_argument("template", metavar="TEMPLATE", help="its name")
    save.add_argument("name", metavar="NAME", nargs="?", help=f"the sandbox whose spec to take: {_NAME}")
    save.add_argument("--force", action="store_true", help="replace a template of this name")
    _add_spec(save)
    diff = verb(
        verbs, "diff", "print the fields that differ from another template or a sandbox; exit 1 if there are any"
    )
    diff.add_argument("template", metavar="TEMPLATE", help="its name")
    diff.add_argument("other", metavar="OTHER", nargs="?", help="another template")
    diff.add_argument("--sandbox", metavar="NAME", help=f"a sandbox: {_NAME}")
    rm = verb(verbs, "rm", "remove templates")
    rm.add_argument("templates", metavar="TEMPLATE", nargs="+", help="its name")


def _add_folder(verbs: Any, verb: _Add) -> None:
    up = verb(verbs, "up", "create and update the sandboxes of this folder's sandbox.toml")
    down = verb(verbs, "down", "stop and remove the sandboxes that up made from this folder's sandbox.toml")
    for one in (up, down):
        one.add_argument("names", metavar="SANDBOX", nargs="*", help="only these; by default all")
        one.add_argument("-f", "--file", metavar="FILE", default="sandbox.toml", help="by default sandbox.toml")
        one.add_argument("--dry-run", action="store_true", help="print what would be done, but do nothing")
    down.add_argument("--grace", metavar="T", default="10s", help="how long each may take to stop")


def _add_drift(verbs: Any, verb: _Add) -> None:
    drift = verb(verbs, "drift", "print what differs from what sandboxes were asked to be; exit 1 if anything does")
    drift.add_argument("names", metavar="NAME", nargs="*", help=f"by default all of this console: {_NAME}")
    drift.add_argument("--all", action="store_true", help="include fields that match, and those that are not known")
    drift.add_argument(
        "--reapply", action="store_true", help="change them back to their spec; asks before recreating one"
    )
    drift.add_argument("--adopt", action="store_true", help="take what is there for what was asked")


def _add_import(verbs: Any, verb: _Add) -> None:
    importing = verb(verbs, "import", "make a spec of what another tool has; what cannot be taken over goes to stderr")
    verbs = importing.add_subparsers(dest="what", metavar="SOURCE", required=True)
    run = verb(verbs, "docker-run", "a docker run line, after --, or on stdin")
    compose = verb(verbs, "compose", "a service of a compose file")
    compose.add_argument("file", metavar="FILE", help="the compose file")
    compose.add_argument("service", metavar="SERVICE", nargs="?", default="", help="by default the only one")
    container = verb(verbs, "devcontainer", "a devcontainer.json")
    container.add_argument("file", metavar="FILE", nargs="?", default="", help="by default the working folder's")
    sandbox = verb(verbs, "sandbox", "a sandbox that exists, also one that another tool made")
    sandbox.add_argument("name", metavar="NAME", help=_NAME)
    for one in (run, compose, container, sandbox):
        one.add_argument("--name", metavar="NEW", dest="rename", help="the name of the spec")
        one.add_argument("--create", action="store_true", help="create it, after a question about what it may do")
