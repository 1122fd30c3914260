"""The arguments of the verbs about this program: its checks, users, tokens and servers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

_Add = Callable[..., argparse.ArgumentParser]


def add(verbs: Any, verb: _Add) -> None:
    """Add all of them. ``verb`` adds one with the common options."""
    _add_machine(verbs, verb)
    _add_tokens(verbs, verb)
    _add_users(verbs, verb)
    _add_serve(verbs, verb)
    _add_desktop(verbs, verb)
    _add_sessions(verbs, verb)
    _add_others(verbs, verb)


def _add_machine(verbs: Any, verb: _Add) -> None:
    verb(verbs, "doctor", "say what works on this machine, what does not, and what to do about it")
    forget = verb(
        verbs, "forget", "follow links in the workspaces of removed sandboxes again; without FOLDER, list these"
    )
    forget.add_argument("folders", metavar="FOLDER", nargs="*", help="a workspace, once you have looked at its links")
    verb(verbs, "schema", "print the JSON Schema of a spec file, for editors")
    verb(verbs, "backends", "list the backends; with --json, all that each one can do, or why it cannot")
    new = verb(verbs, "new-backend", "write a working backend, with its package and a test that runs the suite")
    new.add_argument("name", metavar="NAME", help="its name in the configuration, such as my_cloud")
    new.add_argument("folder", metavar="FOLDER", nargs="?", default="", help="where to write it; by default NAME")
    completion = verb(verbs, "completion", "print a script for a shell to complete verbs, options, names and labels")
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    verb(verbs, "man", "print the manual page: sandbox-console man | man -l -")
    demo = verb(verbs, "demo", "start real sandboxes and open the app on them; without a terminal, print a tour")
    demo.add_argument("--keep", action="store_true", help="keep the sandboxes at the end")


def _add_tokens(verbs: Any, verb: _Add) -> None:
    tokens = verb(verbs, "tokens", "manage who may use the page, the HTTP API, MCP and the status page")
    token = tokens.add_subparsers(dest="what", metavar="VERB", required=True)
    add = verb(token, "add", "create a token and print it; it is not shown again")
    add.add_argument("name", metavar="NAME", help="whose token it is, for the audit log")
    add.add_argument(
        "--scope",
        metavar="S",
        action="append",
        default=[],
        help="page, api, mcp, status or microsandbox; may be repeated",
    )
    add.add_argument("--expires", metavar="T", help="when it expires: 90s, 15m, 2h, 30d")
    verb(token, "ls", "list names, scopes and times; the tokens are stored only as hashes")
    rm = verb(token, "rm", "revoke tokens, even while a server runs")
    rm.add_argument("names", metavar="NAME", nargs="+", help="a name or an id")


def _add_users(verbs: Any, verb: _Add) -> None:
    users = verb(verbs, "users", "manage the people of a team: their roles, their passwords, and what they see")
    user = users.add_subparsers(dest="what", metavar="VERB", required=True)
    add = verb(user, "add", "add a user; the password is asked for, or read from stdin")
    add.add_argument("name", metavar="NAME", help="the name to log in with, which is also the one in the audit log")
    add.add_argument("--role", metavar="R", default="viewer", help="viewer (the default), operator or admin")
    _add_scope(add)
    add.add_argument("--no-password", action="store_true", help="for a user who has tokens, or comes by a proxy")
    change = verb(user, "set", "change a user's role or labels; it holds at once, and ends open sessions")
    change.add_argument("name", metavar="NAME", help="the user")
    change.add_argument("--role", metavar="R", help="viewer, operator or admin")
    _add_scope(change)
    change.add_argument("--no-labels", action="store_true", help="show all sandboxes")
    passwd = verb(user, "passwd", "set a user's password, asked for or read from stdin; it ends open sessions")
    passwd.add_argument("name", metavar="NAME", help="the user")
    verb(user, "ls", "list names, roles, labels and tokens")
    token = verb(user, "token", "create a token with a user's rights and print it; it is not shown again")
    token.add_argument("name", metavar="NAME", help="the user")
    token.add_argument(
        "--scope",
        metavar="S",
        action="append",
        default=[],
        help="page, api, mcp, status or microsandbox; may be repeated",
    )
    token.add_argument(
        "--as", metavar="TOKEN", dest="token_name", help="the token's name; by default NAME.1, NAME.2 ..."
    )
    token.add_argument("--expires", metavar="T", help="when it expires: 90s, 15m, 2h, 30d")
    rm = verb(user, "rm", "remove users with their tokens; it holds at once, and ends open sessions")
    rm.add_argument("names", metavar="NAME", nargs="+", help="a user")


def _add_scope(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--label",
        "-l",
        metavar="K=V",
        action="append",
        default=[],
        help="hide sandboxes without this label; may be repeated",
    )


def _add_serve(verbs: Any, verb: _Add) -> None:
    serve = verb(verbs, "serve", "serve the app to browsers, behind a login", hosts=False)
    serve.add_argument("--host", metavar="H", default="127.0.0.1", help="the address to listen on")
    serve.add_argument("--port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--token-file", metavar="FILE", help="a file of mode 0600 with the login token")
    serve.add_argument("--cert", metavar="FILE", help="a PEM certificate, for https")
    serve.add_argument("--key", metavar="FILE", help="its key, if the certificate's file does not contain it")
    serve.add_argument(
        "--hostname", metavar="NAME", action="append", default=[], help="another host name that browsers may use"
    )
    serve.add_argument("--open", action="store_true", default=None, help="open the link in this machine's browser")
    serve.add_argument("--prefix", metavar="PATH", help="the path under which a proxy has it, as /console")
    serve.add_argument(
        "--trust-proxy", metavar="ADDRESS", action="append", default=[], help="a proxy's address; needs --hostname"
    )
    serve.add_argument("--user-header", metavar="H", help="the header in which that proxy names the user")
    serve.add_argument("--socket", metavar="PATH", help="listen on a socket file for a proxy; needs --hostname")
    serve.add_argument("--max-sessions", metavar="N", help="how many sessions may run; by default 8")
    serve.add_argument("--keep", metavar="T", help="how long a session without a page lives; by default 8h")
    serve.add_argument(
        "--idle-timeout", metavar="T", help="end a shown session without a key for so long; by default 1h"
    )
    serve.add_argument("--insecure-no-tls", action="store_true", help="let other machines connect without TLS")
    serve.add_argument(
        "--pass-env", metavar="NAME", action="append", default=[], help="pass a variable to browser sessions"
    )
    serve.add_argument("--api", action="store_true", help="also serve the HTTP API for agents, on its own port")
    serve.add_argument("--api-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--mcp", action="store_true", help="also serve MCP over HTTP, on its own port")
    serve.add_argument("--mcp-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument(
        "--microsandbox", action="store_true", help="also serve old microsandbox clients (JSON-RPC), on its own port"
    )
    serve.add_argument("--microsandbox-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--status", action="store_true", help="also serve /status and /metrics, on their own port")
    serve.add_argument("--status-port", metavar="P", default="0", help="0 chooses a free port")
    serve.add_argument("--no-page", action="store_true", help="with one of these: do not serve the page")


def _add_desktop(verbs: Any, verb: _Add) -> None:
    desktop = verb(verbs, "desktop", "show the app in a window of its own (Chromium, Chrome or Edge)")
    desktop.add_argument("--install", action="store_true", help="add it to the desktop's menu, and do not open it")


def _add_sessions(verbs: Any, verb: _Add) -> None:
    sessions = verb(verbs, "sessions", "list and end the browser sessions of the servers on this machine")
    session = sessions.add_subparsers(dest="what", metavar="VERB", required=True)
    verb(session, "ls", "list them: who, since when, and whether a page shows it")
    end = verb(session, "end", "end sessions; their pages say so. Sandboxes and kept shells stay")
    end.add_argument("names", metavar="ID", nargs="+", help="an id, or its beginning")


def _add_others(verbs: Any, verb: _Add) -> None:
    verb(verbs, "mcp", "serve MCP on stdin and stdout, for an assistant that starts this command")
    shim = verb(verbs, "a3s-box", "answer the SDK of A3S Box, which starts this command for each call")
    shim.add_argument(
        "what", choices=("sdk-bridge",), metavar="sdk-bridge", help="one call on stdin, answered on stdout"
    )
    block = verb(verbs, "ssh-config", "print the Host block by which ssh, scp, sftp and rsync reach NAME.sandbox")
    block.add_argument(
        "--write", metavar="FILE", nargs="?", const="", help="put it into a file instead; by default ~/.ssh/config"
    )
    proxy = verb(verbs, "proxy", "speak ssh on stdin and stdout for a sandbox: the ProxyCommand of ssh-config")
    proxy.add_argument("name", metavar="NAME", help="a name, backend:name, or backend/host/id; .sandbox may follow")
    share = verb(verbs, "share", "share the app through a public relay, without a login; needs --yes")
    share.add_argument("--read-write", action="store_true", help="let viewers do what the policy allows, not only look")
    share.add_argument(
        "--environment", metavar="E", default="prod", help="the relay: prod, or local for one on this machine"
    )
