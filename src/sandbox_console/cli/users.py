"""``users``: manages the people of a team. A password is never shown, and never an argument."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from sandbox_console.cli.context import Context
from sandbox_console.cli.tokens import lifetime, utc
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.access import Access, checked_labels, checked_role
from sandbox_console.service import find_paths
from sandbox_console.service.gate.local_change import local_change
from sandbox_console.service.people.users import User, Users
from sandbox_console.service.tokens import Token, Tokens

T = TypeVar("T")


async def users(context: Context) -> int:
    """Run ``add``, ``set``, ``passwd``, ``rm``, ``token`` or ``ls``."""
    paths = find_paths()
    paths.make_private()
    store, tokens = Users(paths.tokens), Tokens(paths.tokens)
    match context.args.what:
        case "ls":
            _ls(context, await asyncio.to_thread(store.every), await asyncio.to_thread(tokens.every))
        case "add":
            await _add(context, store)
        case "set":
            await _set(context, store)
        case "passwd":
            await _passwd(context, store)
        case "token":
            await _token(context, tokens)
        case "rm":
            await _rm(context, store)
    return context.code


async def _add(context: Context, store: Users) -> None:
    args = context.args
    access = Access(checked_role(args.role), checked_labels(args.label))
    if any(user.name == args.name for user in store.every()):
        password = ""  # it is refused, so no password is asked for
    else:
        password = "" if args.no_password else await asyncio.to_thread(_password, context)
    body = {"user": args.name, "role": access.role, "labels": access.labels}
    user = await _recorded(context, "user-add", body, lambda: store.add(args.name, access, password))
    _tell(context, user, f"{user.name} is {_a(user.access)}")


async def _set(context: Context, store: Users) -> None:
    args = context.args
    if args.label and args.no_labels:
        raise UsageError("--label and --no-labels contradict each other")
    if not (args.role or args.label or args.no_labels):
        raise UsageError("there is nothing to change", hint="--role, --label or --no-labels")
    role = checked_role(args.role) if args.role else None
    labels = checked_labels(args.label) if args.label or args.no_labels else None
    body = {"user": args.name} | ({"role": role} if role else {}) | ({} if labels is None else {"labels": labels})
    user = await _recorded(context, "user-set", body, lambda: store.change(args.name, role=role, labels=labels))
    _tell(context, user, f"{user.name} is {_a(user.access)}")


async def _passwd(context: Context, store: Users) -> None:
    name = context.args.name
    store.change(name)  # an unknown one is refused before a password is asked for
    password = await asyncio.to_thread(_password, context)
    user = await _recorded(context, "user-passwd", {"user": name}, lambda: store.change(name, password=password))
    _tell(context, user, f"the password of {user.name} is changed")


async def _rm(context: Context, store: Users) -> None:
    for name in context.args.names:
        try:
            user = await _recorded(context, "user-rm", {"user": name}, lambda name=name: store.remove(name))  # type: ignore[misc]
        except ConsoleError as error:
            context.fail(error, name)
            continue
        _tell(context, user, f"{user.name} is refused from now on")


async def _token(context: Context, tokens: Tokens) -> None:
    args = context.args
    names = {token.name for token in tokens.every()}
    free = next(name for number in range(1, len(names) + 2) if (name := f"{args.name}.{number}") not in names)
    name, scopes, expires = args.token_name or free, args.scope, lifetime(args.expires)
    body = {"user": args.name, "token": name, "scopes": scopes, "expires_s": expires}
    token, text = await _recorded(context, "user-token", body, lambda: tokens.add(name, scopes, expires, args.name))
    if context.json:
        context.record({"name": token.name, "id": token.id, "scopes": list(token.scopes), "token": text})
    else:
        context.text(text)
        context.say("this is the only time it is shown")


async def _recorded(context: Context, verb: str, body: Mapping[str, Any], act: Callable[[], T]) -> T:
    """Change the users, with an attempt and its outcome in the audit log."""

    def acting() -> Awaitable[T]:
        return asyncio.to_thread(act)

    async with context.open() as console:
        return await local_change(console.audit_log, verb, body, acting, read_only=console.read_only)


def _password(context: Context) -> str:
    """The password, asked for twice or read from standard input. Raises UsageError."""
    fd = context.streams.stdin
    if fd is None:
        raise UsageError("there is no terminal to ask for a password", hint="pass it on stdin, or give --no-password")
    if not os.isatty(fd):
        with os.fdopen(os.dup(fd), "rb") as file:
            line = file.readline(8192)
        try:
            return _given(line.decode().removesuffix("\n").removesuffix("\r"))
        except UnicodeDecodeError:
            raise UsageError("the password on stdin is not UTF-8 text") from None
    first = _given(getpass.getpass("Password: "))
    if getpass.getpass("Again: ") != first:
        raise UsageError("the two passwords differ", hint="try again")
    return first


def _given(password: str) -> str:
    if not password:
        raise UsageError("the password is empty", hint="--no-password adds a user without one")
    return password


def _ls(context: Context, every: Sequence[User], tokens: Sequence[Token]) -> None:
    of = {user.id: [token.name for token in tokens if token.user == user.id] for user in every}

    def cells(user: User) -> tuple[str, ...]:
        labels = " ".join(f"{key}={value}" for key, value in user.labels.items()) or "all"
        password = "yes" if user.password else "no"
        return user.name, user.role, labels, password, " ".join(of[user.id]) or "-", utc(user.created_at)

    def record(user: User) -> dict[str, Any]:
        return _record(user) | {"tokens": of[user.id]}

    if not every:
        context.say("there are no users: whoever has the token of serve may do everything")
    context.listing(("NAME", "ROLE", "SEES", "PASSWORD", "TOKENS", "MADE"), every, record, cells)


def _tell(context: Context, user: User, text: str) -> None:
    if context.json:
        context.record(_record(user))
    else:
        context.text(text)


def _a(access: Access) -> str:
    return f"{'a' if access.role == 'viewer' else 'an'} {access.described}"


def _record(user: User) -> dict[str, Any]:
    return {
        "name": user.name, "id": user.id, "role": user.role, "labels": dict(user.labels),
        "password": bool(user.password), "created_at": user.created_at,
    }  # fmt: skip
