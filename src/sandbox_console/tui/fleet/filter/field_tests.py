"""Field tests of the filter line, such as ``cpu>80`` or ``state=exited,failed``. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from fnmatch import translate

from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.drift import drifted
from sandbox_console.model.sandbox import Sandbox, Stats, Status
from sandbox_console.tui.fleet.filter.tokens import FilterError, Word, duration, number, searcher, size, yes
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import maker, status_reason
from sandbox_console.tui.text.port_text import openings

Test = Callable[[Sandbox, FleetState, float], bool]
Value = Callable[[Sandbox, FleetState, float], float | None]
_FIELD = re.compile(r"(label[.:][^=!<>~]+|[A-Za-z_]+)(!=|!~|>=|<=|=|~|>|<)|(port)(:)", re.ASCII)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_STATES = frozenset(str(status) for status in Status)


def _stat(name: str) -> Value:
    get = operator.attrgetter(name)

    def value(sandbox: Sandbox, state: FleetState, _: float) -> float | None:
        stats: Stats | None = state.stats.get(sandbox.ref)
        return None if stats is None else get(stats)

    return value


def _since(name: str) -> Value:
    get = operator.attrgetter(name)

    def value(sandbox: Sandbox, _: FleetState, now: float) -> float | None:
        at: float | None = get(sandbox)
        return None if at is None else now - at

    return value


def _denials(sandbox: Sandbox, state: FleetState, _: float) -> float:
    denial = state.denied.get(sandbox.ref)
    return denial.count if denial else 0


def _exit(sandbox: Sandbox, _: FleetState, __: float) -> float | None:
    return sandbox.exit.code if sandbox.exit is not None and not sandbox.status.live else None


NUMBERS: dict[str, tuple[Value, Callable[[str, int], float]]] = {
    "cpu": (_stat("cpu_percent"), number),
    "mem": (_stat("memory_bytes"), size),
    "pids": (_stat("pids"), number),
    "rx": (_stat("net_rx"), size),
    "tx": (_stat("net_tx"), size),
    "log": (_stat("log_rate"), size),
    "age": (_since("created_at"), duration),
    "up": (_since("started_at"), duration),
    "ended": (_since("finished_at"), duration),
    "exit": (_exit, number),
    "restarts": (lambda sandbox, *_: sandbox.restarts, number),
    "secrets": (lambda sandbox, *_: len(sandbox.spec.secrets) if sandbox.spec else None, number),
    "denied": (_denials, number),
    "drift": (lambda sandbox, *_: len(drifted(sandbox)) if sandbox.spec else None, number),
    "ports": (lambda sandbox, *_: len(openings(sandbox)), number),
}
TEXTS: dict[str, Callable[[Sandbox], str]] = {
    "name": lambda sandbox: sandbox.name,
    "id": lambda sandbox: sandbox.ref.id,
    "image": lambda sandbox: sandbox.image,
    "backend": lambda sandbox: sandbox.ref.backend,
    "host": lambda sandbox: sandbox.ref.host,
    "maker": maker,
    "state": lambda sandbox: str(sandbox.status),
    "why": status_reason,
}
YES_NO: dict[str, Callable[[Sandbox], bool]] = {
    "managed": lambda sandbox: sandbox.managed,
    "oom": lambda sandbox: bool(sandbox.exit and sandbox.exit.oom),
    "live": lambda sandbox: sandbox.status.live,
}
ALIASES = {"memory": "mem", "status": "state", "exit_code": "exit", "denials": "denied", "label": "label"}
NAMES = (*TEXTS, *NUMBERS, *YES_NO, "egress", "port", "label.KEY")
MOVING = frozenset({"cpu", "mem", "pids", "rx", "tx", "log", "age", "up", "ended", "denied"})
"""Fields whose value can change without a change of the sandbox."""
SAMPLED = frozenset({"cpu", "mem", "pids", "rx", "tx", "log"})
"""The fields whose values come from samples."""


def field_test(word: Word) -> tuple[str, Test] | None:
    """Return the field that a word names and its test, or None if the word is not a field test. Raises FilterError."""
    match = _FIELD.match(word.text)
    if match is None or (word.quoted is not None and word.quoted < match.end()):
        return None
    name, sign, value = match[1] or match[3], match[2] or "=", word.text[match.end() :]
    at = word.at + match.end() + (word.quoted == match.end())
    if name.startswith(("label.", "label:")):
        key = name[6:]
        return "label", _text_test(lambda sandbox: sandbox.labels.get(key, ""), sign, value, at, word)
    name = ALIASES.get(name.lower(), name.lower())
    if name in NUMBERS:
        return name, _number_test(name, sign, value, at)
    if name in TEXTS:
        if name == "state":
            _check_states(sign, value, at)
        return name, _text_test(TEXTS[name], sign, value, at, word)
    if name in YES_NO:
        return name, _yes_test(YES_NO[name], sign, value, at)
    if name == "egress":
        return name, _egress_test(sign, value, at, word)
    if name == "port":
        return name, _port_test(sign, value, at)
    near = nearest(name, NAMES)
    known = f"did you mean {near}?" if near else f"there are {', '.join(NAMES)}"
    raise FilterError(f"no field {name!r}: {known}", word.at)


def _needed(value: str, at: int) -> None:
    if not value:
        raise FilterError("a value is missing here", at)


def _number_test(name: str, sign: str, text: str, at: int) -> Test:
    """Return a test of a number. An unknown value matches no comparison, not even ``!=``."""
    _needed(text, at)
    if sign not in _COMPARE:
        raise FilterError(f"{name} is a number: use = != > >= < <=", at - len(sign))
    get, read = NUMBERS[name]
    compare, wanted = _COMPARE[sign], read(text, at)

    def holds(sandbox: Sandbox, state: FleetState, now: float) -> bool:
        value = get(sandbox, state, now)
        return value is not None and compare(value, wanted)

    return holds


def _yes_test(get: Callable[[Sandbox], bool], sign: str, text: str, at: int) -> Test:
    _needed(text, at)
    if sign not in ("=", "!="):
        raise FilterError("it is yes or no: use =", at - len(sign))
    wanted = yes(text, at) is (sign == "=")
    return lambda sandbox, *_: get(sandbox) is wanted


def _text_test(get: Callable[[Sandbox], str], sign: str, text: str, at: int, word: Word) -> Test:
    if sign not in ("=", "!=", "~", "!~"):
        raise FilterError("it is text: use = != ~ !~", at - len(sign))
    if sign.endswith("~"):
        _needed(text, at)
        found = searcher(text, at)
        return (
            (lambda sandbox, *_: bool(found(get(sandbox))))
            if sign == "~"
            else (lambda sandbox, *_: not found(get(sandbox)))
        )
    same = equals(text, literal=word.quoted is not None)
    return (lambda sandbox, *_: same(get(sandbox))) if sign == "=" else (lambda sandbox, *_: not same(get(sandbox)))


def equals(text: str, *, literal: bool = False) -> Callable[[str], bool]:
    """Return a test for one of several comma-separated values. ``*`` and ``?`` are wildcards unless ``literal``."""
    if literal or not set("*?,").intersection(text):
        return text.__eq__
    parts = [part for part in text.split(",") if part]
    exact = frozenset(part for part in parts if not set("*?").intersection(part))
    globs = [re.compile(_collapsed(part)) for part in parts if part not in exact]
    return lambda value: value in exact or any(glob.match(value) for glob in globs)


def _collapsed(glob: str) -> str:
    """Collapse ``**`` to ``*``. Each star is one lazy group that cannot backtrack, so no pattern takes forever."""
    return translate(re.sub(r"\*+", "*", glob).replace("[", "[[]"))


def _check_states(sign: str, text: str, at: int) -> None:
    if sign.endswith("~") or set("*?").intersection(text):
        return
    for part in text.split(","):
        if part not in _STATES:
            near = nearest(part, _STATES)
            known = f"did you mean {near}?" if near else f"there are {', '.join(sorted(_STATES))}"
            raise FilterError(f"no state {part!r}: {known}", at + text.find(part))


def _port_test(sign: str, text: str, at: int) -> Test:
    """Return a test of the ports of the sandbox, or the host's ports for them: ``8080``, several with commas."""
    _needed(text, at)
    if sign not in ("=", "!="):
        raise FilterError("port is one of those published: use = or !=; ports counts them", at - len(sign))
    wanted = {int(number(part, at)) for part in text.split(",") if part}
    positive = sign == "="

    def holds(sandbox: Sandbox, *_: object) -> bool:
        return (
            any(opening.at.port in wanted or opening.at.host_port in wanted for opening in openings(sandbox))
            is positive
        )

    return holds


def _egress_test(sign: str, text: str, at: int, word: Word) -> Test:
    """Return a test of the egress: ``none``, ``any``, a number of patterns, or a pattern in the spec's list."""
    _needed(text, at)
    if sign in _COMPARE and (text[0].isdigit() or sign not in ("=", "!=")):
        compare, count = _COMPARE[sign], number(text, at)
        return lambda sandbox, *_: sandbox.spec is not None and compare(len(sandbox.spec.egress), count)
    if sign in ("=", "!=") and text in ("none", "deny", "any"):
        wanted = (text == "any") is (sign == "=")
        return lambda sandbox, *_: sandbox.spec is not None and bool(sandbox.spec.egress) is wanted
    fits = searcher(text, at) if sign.endswith("~") else equals(text, literal=word.quoted is not None)
    positive = not sign.startswith("!")
    return lambda sandbox, *_: _one_of(sandbox.spec.egress if sandbox.spec else (), fits) is positive


def _one_of(values: Iterable[str], fits: Callable[[str], object]) -> bool:
    return any(fits(value) for value in values)
