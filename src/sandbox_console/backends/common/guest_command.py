"""A command for a provider that takes only words: variables and folder are set by the image's ``env`` and ``sh``."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.model.action import Exec

_IN_FOLDER = 'cd -- "$0" || exit 126; exec env "$@"'


def in_guest(request: Exec) -> Sequence[str]:
    """The words to run. Other processes of the sandbox can see the variables in them."""
    env = [f"{name}={value}" for name, value in request.env.items()]
    if request.workdir:
        return ["sh", "-c", _IN_FOLDER, request.workdir, *env, *request.argv]
    return ["env", *env, *request.argv] if env else request.argv
