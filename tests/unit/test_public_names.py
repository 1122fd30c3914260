"""What ``sandbox_console`` promises by name. A name that goes breaks somebody's program: docs/python.md."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import sandbox_console
from sandbox_console import sync

STABLE = {
    "ActionResult",
    "Ambiguous",
    "Attach",
    "AuditQuery",
    "AuditUnavailable",
    "BackendError",
    "BackendHealth",
    "BackendUnreachable",
    "Bundle",
    "ChangeEgress",
    "Commit",
    "ConfigError",
    "Conflict",
    "Consent",
    "Console",
    "ConsoleError",
    "Create",
    "Denied",
    "DenyEgress",
    "Download",
    "EgressRule",
    "Exec",
    "ExecIO",
    "ExecResult",
    "Exit",
    "Fork",
    "Forward",
    "InputFailed",
    "InvalidSpec",
    "Kill",
    "LoadImage",
    "LogGap",
    "LogQuery",
    "LogRecord",
    "NeedsConfirmation",
    "NoRoom",
    "NotFound",
    "EndShell",
    "OpenShell",
    "Operation",
    "Pause",
    "PruneImages",
    "PublishedPort",
    "PullImage",
    "Quarantine",
    "Release",
    "Remove",
    "RemoveImage",
    "RemoveSnapshot",
    "Rename",
    "Restart",
    "RestoreSnapshot",
    "Resume",
    "RunningCommand",
    "Sandbox",
    "SandboxEnded",
    "SandboxHandle",
    "SandboxRef",
    "SandboxSpec",
    "SaveImage",
    "Secret",
    "SecretError",
    "ShellSession",
    "Start",
    "Status",
    "Stop",
    "Stream",
    "TakeSnapshot",
    "TimedOut",
    "Unsupported",
    "Update",
    "Upload",
    "UsageError",
    "open_console",
    "__version__",
}
HANDLE = {
    "exec",
    "exists",
    "inspect",
    "kill",
    "logs",
    "mkdir",
    "name",
    "pause",
    "ports",
    "read_file",
    "ref",
    "remove",
    "restart",
    "resume",
    "shell",
    "start",
    "stop",
    "stream",
    "wait",
    "write_file",
}
CONSOLE = {"create", "health", "history", "list", "logs", "perform", "sandbox", "shell", "watch"}


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_public_names_are_these():
    assert set(sandbox_console.__all__) == STABLE
    assert set(dir(sandbox_console)) >= STABLE
    assert all(getattr(sandbox_console, name) is not None for name in STABLE)
    assert set(sync.__all__) == {"Console", "Held", "RunningCommand", "SandboxHandle", "ShellSession", "open_console"}


def test_every_action_and_error_is_among_them():
    from sandbox_console import errors
    from sandbox_console.model.action import Action

    assert {kind.__name__ for kind in Action.__args__} <= STABLE
    assert {name for name, one in vars(errors).items() if isinstance(one, type) and name != "Any"} <= STABLE


def test_the_methods_are_these():
    assert public(sandbox_console.Console) == CONSOLE
    assert public(sandbox_console.SandboxHandle) | {"name", "ref"} == HANDLE
    assert public(sync.Console) == CONSOLE - {"watch"}
    assert public(sync.SandboxHandle) == HANDLE
    assert set(sandbox_console.ExecResult.__struct_fields__) >= {
        "exit_code",
        "stdout",
        "stderr",
        "truncated",
        "timed_out",
        "signal",
        "oom",
        "reason",
        "pid",
        "audit_id",
    }


def test_a_name_costs_nothing_before_it_is_used():
    code = (
        "import sys, sandbox_console; print([m for m in sys.modules if m.startswith(('sandbox_console.', 'msgspec'))]);"
        "sandbox_console.NotFound; print('sandbox_console.library' in sys.modules, hasattr(sandbox_console, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['sandbox_console.version']\nTrue False\n"


def test_the_package_says_that_it_is_typed() -> None:
    assert files(sandbox_console).joinpath("py.typed").is_file()
