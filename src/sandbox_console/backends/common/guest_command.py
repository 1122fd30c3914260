"""Commands in the words that a provider takes, and the end of all that a command started, by the image's ``sh``."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.model.action import Exec

MARK = "SANDBOX_CONSOLE_COMMAND"
"""A variable whose value is another for each command. What the command starts inherits it."""
_END_MARKED = r"""
for round in 1 2 3; do
  for one in /proc/[0-9]*; do
    tr '\0' '\n' <"$one/environ" 2>/dev/null | grep -qxF "$1" && kill -9 "${one#/proc/}"
  done
done 2>/dev/null
true
"""
_IN_FOLDER = 'cd -- "$0" || exit 126; exec env "$@"'


def in_guest(request: Exec) -> Sequence[str]:
    """The words to run. Other processes of the sandbox can see the variables in them."""
    env = [f"{name}={value}" for name, value in request.env.items()]
    if request.workdir:
        return ["sh", "-c", _IN_FOLDER, request.workdir, *env, *request.argv]
    return ["env", *env, *request.argv] if env else request.argv


def end_marked(mark: str) -> Sequence[str]:
    """The words that kill every process whose environment has this value of MARK, for a provider that ends only one."""
    return "sh", "-c", _END_MARKED, "sh", f"{MARK}={mark}"
