"""Translates an engine's errors and silence into the console's errors."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_console.backends.docker.podman_dialect import NOT_RUNNING
from sandbox_console.errors import BackendError, BackendUnreachable, Conflict, NotFound
from sandbox_console.model.lazy_pattern import lazy_pattern

_NOISE = lazy_pattern(
    r"(failed to create (shim )?task( for container)?|OCI runtime (create|exec) failed|runc create failed"
    r"|exec failed|unable to start container process|Cannot restart container \S+|[a-z_.]+\.go:\d+[^:]*"
    r"|starting container process caused|container_linux|Error response from daemon): "
)


class Refused(BackendError):
    """The engine answered with an error status; ``status`` is the HTTP code."""

    def __init__(self, message: str, status: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


def refused(message: str, status: int) -> Refused:
    """The error for a refusal in the engine's words, with the next step if one is known."""
    text = plain(message)
    hint = "free some: sandbox-console images prune" if "no space left on device" in text else ""
    return Refused(f"the engine's disk is full: {text}" if hint else text, status, hint=hint)


class Unusable(BackendUnreachable):
    """The context itself is invalid: unknown, damaged, or of a kind that is not supported."""


class GuestsEngine(Unusable):
    """A sandbox can write where the engine is, or what says where it is: it could pretend to be the engine."""

    code = "guests_engine"


class Lost(BackendUnreachable):
    """The connection broke while it was in use."""


def plain(message: str) -> str:
    """An engine's message without the names of the layers that it passed through."""
    return _NOISE.sub("", message).removesuffix(": unknown").strip()


def no_answer(context: str, address: str, number: int | None, text: str) -> BackendUnreachable:
    """The error for an engine that does not answer, with a fix for each errno: no socket, permission or listener."""
    match number:
        case errno.ENOENT:
            reason, hint = f"there is no socket at {address}", f"start the engine, or {_elsewhere(context)}"
        case errno.EACCES | errno.EPERM:
            reason = f"permission denied on {address}"
            hint = "add your user to the group docker (usermod -aG docker USER) and log in again"
        case errno.ECONNREFUSED:
            reason, hint = f"nothing listens on {address} (connection refused)", "start the engine"
        case _:
            reason, hint = (
                text or "it does not answer",
                "check that the engine is running and that its address is right",
            )
    return BackendUnreachable(engine_prefix(context) + reason, hint=hint)


def _elsewhere(context: str) -> str:
    if context == "default":  # DOCKER_HOST, or the CLI's own default
        return "set DOCKER_HOST to where it listens"
    return f"see docker context inspect {shlex.quote(context)}"


def engine_prefix(context: str) -> str:
    """The beginning of every message about an engine. A health omits it, as it already names its backend."""
    return f"docker engine {context!r}: "


_STATE = (" is not paused", NOT_RUNNING)  # answered with 500, the second by Podman
_GONE = ("no such container", "layer not known")  # with 500, by Podman


@contextmanager
def about(thing: str) -> Iterator[None]:
    """Turn a refusal into NotFound (404) or Conflict (409), which name ``thing``. Other errors stay as they are."""
    try:
        yield
    except Refused as error:
        if error.status == 404 or error.message.endswith(_GONE):
            raise NotFound(f"{thing} is not on this engine (any more)", hint="sandbox-console ls --all") from error
        if error.status == 409 or any(words in error.message for words in _STATE):
            raise Conflict(f"{thing}: {error.message}", hint="sandbox-console show NAME prints its state") from error
        raise
