"""Hands secrets over through stdin. A small shell reads them before the command, so no inspect or disk has them.

The lines are ``e NAME=value`` for a variable, ``f NAME=value`` for a file, ``+more`` for each further line of a value,
and ``.`` at the end. Only builtins of a POSIX shell are used, so any image with /bin/sh will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox_console.backends.docker.labels import SECRETS, WRAPPER
from sandbox_console.errors import SecretError, Unsupported
from sandbox_console.model.secret import ResolvedSecret

FOLDER = "/run/secrets"
WAIT_S = 5
"""How long the command waits for its secrets. The console sends them with the start, other tools never do."""

_READ = r"""
_sc_nl='
'
_sc_put() {
  case $_sc_k in
    e) export "$_sc_n=$_sc_v" ;;
    f) (umask 077; printf %s "$_sc_v" > "/run/secrets/$_sc_n") || _sc_end=failed ;;
  esac
  _sc_k=
}
_sc_read() {
  while IFS= read -r $1 _sc_l; do
    case $_sc_l in
      .) _sc_put; : "${_sc_end:=ok}"; return ;;
      +*) _sc_v=$_sc_v$_sc_nl${_sc_l#+} ;;
      [ef]\ *) _sc_put; _sc_k=${_sc_l%% *}; _sc_l=${_sc_l#* }; _sc_n=${_sc_l%%=*}; _sc_v=${_sc_l#*=} ;;
    esac
  done
}
unset _sc_k _sc_n _sc_v _sc_l _sc_end
"""

# bash and busybox have `read -t`; dash does not, so there a watchdog interrupts the read.
_ENTRY = (
    _READ
    + r"""
(IFS= read -t 1 -r _sc_l) </dev/null 2>/dev/null
if [ $? -le 1 ]; then _sc_read '-t @WAIT@'
else
  trap 'exec </dev/null' USR1
  (trap 'kill $_sc_s 2>/dev/null; exit 0' TERM; sleep @WAIT@ & _sc_s=$!; wait $_sc_s; kill -USR1 $$) >/dev/null 2>&1 &
  _sc_w=$!
  _sc_read ''
  kill $_sc_w 2>/dev/null; wait $_sc_w 2>/dev/null; trap - USR1
fi
if [ "$_sc_end" != ok ]; then
  echo 'sandbox-console: the secrets of this sandbox did not come, so its command was not run.' >&2
  echo 'sandbox-console: start it with "sandbox-console start"; other tools cannot hand them over.' >&2
  exit 78
fi
unset _sc_nl _sc_k _sc_n _sc_v _sc_l _sc_end _sc_w
exec "$@" </dev/null
""".replace("@WAIT@", str(WAIT_S))
)

# For a command beside the main process there are only files, in a folder that may have to be created.
_FILES = (
    "umask 077; [ -d /run/secrets ] || mkdir -p /run/secrets || exit 1\n" + _READ + "_sc_read ''; [ \"$_sc_end\" = ok ]"
)


def entrypoint() -> list[str]:
    """The command that replaces the image's entrypoint. The real command follows as its arguments."""
    return ["/bin/sh", "-c", _ENTRY, WRAPPER]


def file_writer() -> list[str]:
    """A command that writes the secret files it reads."""
    return ["/bin/sh", "-c", _FILES, WRAPPER]


def payload(secrets: Iterable[ResolvedSecret]) -> bytes:
    """The lines that hand secrets over. Raises SecretError for a value that cannot be a variable or a text file."""
    lines: list[str] = []
    for secret in secrets:
        if "\0" in secret.value:
            raise SecretError(f"secret {secret.name!r} has a NUL byte, which no variable can hold")
        first, *more = secret.value.split("\n")
        lines += [f"{'f' if secret.inject == 'file' else 'e'} {secret.name}={first}", *(f"+{line}" for line in more)]
    return "".join(f"{line}\n" for line in [*lines, "."]).encode()


def label(secrets: Sequence[ResolvedSecret]) -> str:
    """The names, and how each is handed over, for the container's label."""
    return ",".join(f"{secret.inject}:{secret.name}" for secret in secrets)


def check(secrets: Sequence[ResolvedSecret]) -> None:
    """Raise Unsupported for a way of handing over that this backend does not have."""
    for secret in secrets:
        if secret.inject == "placeholder":
            raise Unsupported(
                f"secret {secret.name!r}: placeholder injection needs the egress gateway, which docker has not yet",
                hint='set inject = "env" or "file" for it',
            )


def wanted(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The secrets that a container waits for when it starts, as (inject, name), read from its inspected Config."""
    entry = config.get("Entrypoint") or []
    if len(entry) != 4 or entry[3] != WRAPPER:
        return ()
    names = (config.get("Labels") or {}).get(SECRETS, "")
    return tuple((how, name) for how, _, name in (item.partition(":") for item in names.split(",")) if name)


def chosen(wanted: Sequence[tuple[str, str]], secrets: Sequence[ResolvedSecret], sandbox: str) -> list[ResolvedSecret]:
    """The secrets to send. Raises SecretError if one is missing, or is now handed over in another way."""
    by_key: dict[tuple[str, str], ResolvedSecret] = {(secret.inject, secret.name): secret for secret in secrets}
    missing = [name for how, name in wanted if (how, name) not in by_key]
    if missing:
        raise SecretError(
            f"{sandbox} was made to take the secret {missing[0]!r} at its start, and it was not given in that way",
            hint="define it in the config as it was, or recreate the sandbox",
        )
    extra = sorted(name for how, name in by_key if (how, name) not in set(wanted))
    if extra:
        raise SecretError(
            f"{sandbox} was not made to take the secret {extra[0]!r}", hint="recreate it with that secret"
        )
    return [by_key[key] for key in wanted]
