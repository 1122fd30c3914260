"""The ``[alerts]`` table: rules that say what to watch for, and channels that say who gets the messages."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field, structs

from sandbox_console.errors import UsageError
from sandbox_console.model.alert import Severity
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.quantities import parse_duration_s, parse_size_mib
from sandbox_console.model.sandbox import Status
from sandbox_console.model.sandbox_filter import SYNTAX, parse_filter

Times = Annotated[int, Meta(ge=1, le=10_000)]
Positive = Annotated[float, Meta(gt=0)]
Kind = Literal["state", "restarts", "log", "metric", "denied", "audit", "backend"]

OOM, ERROR = "oom", "error"
"""More states than a sandbox has: out of memory, and an exit code other than 0 that SIGTERM does not explain."""
STATES = (OOM, ERROR, *map(str, Status))
BAD_STATES = (OOM, ERROR, str(Status.FAILED), str(Status.LOST))
"""What ``on = "state"`` looks for by default."""
METRICS = ("cpu", "memory", "network", "disk", "log", "processes")
OUTCOMES = ("ok", "failed", "denied", "unsupported", "cancelled", "timed_out", "unknown")

_USES: Mapping[Kind, frozenset[str]] = {
    "state": frozenset({"states", "filter", "for"}),
    "restarts": frozenset({"count", "within", "filter"}),
    "log": frozenset({"pattern", "count", "within", "filter"}),
    "metric": frozenset({"metric", "above", "filter", "for"}),
    "denied": frozenset({"count", "within", "filter"}),
    "audit": frozenset({"actions", "outcomes", "actors", "count", "within"}),
    "backend": frozenset({"backends", "for"}),
}
"""The keys that each kind of rule uses."""
_ALWAYS = frozenset({"on", "severity", "throttle", "repeat", "to", "resolved"})
_SENDS: Mapping[str, frozenset[str]] = {
    "desktop": frozenset(),
    "webhook": frozenset({"url", "url_secret", "key", "shape"}),
    "command": frozenset({"command"}),
    "email": frozenset({"server", "tls", "user", "password", "sender", "recipients"}),
}
_SECRET_HOSTS = ("hooks.slack.com", "discord.com", "outlook.office.com")
"""Hosts whose webhook addresses let everybody post who knows them."""


class AlertRule(Struct, frozen=True, kw_only=True):
    """One ``[alerts.rules.NAME]`` table. Times are written like 30s or 5m.

    The condition must hold for the time ``for``; what happens ``count`` times ``within`` a time is one condition.
    ``above`` is a number, a size, or a percentage. ``throttle`` is the shortest time between two messages about the
    same subject; while it lasts, another one comes after ``repeat`` (``0s``: none). ``to`` names channels; empty means
    all. With ``resolved`` a message says that it is over.
    """

    on: Kind
    severity: Severity = "warning"
    filter: str = ""
    states: tuple[str, ...] = BAD_STATES
    pattern: str = ""
    metric: Literal["", "cpu", "memory", "network", "disk", "log", "processes"] = ""
    above: str | float = ""
    actions: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    count: Times = 1
    within: str = "5m"
    lasting: str = field(default="0s", name="for")
    throttle: str = "5m"
    repeat: str = "4h"
    to: tuple[str, ...] = ()
    resolved: bool = True

    @property
    def lasting_s(self) -> float:
        """How long the condition must hold, in seconds."""
        return parse_duration_s(self.lasting)

    @property
    def within_s(self) -> float:
        """The time in which it must happen ``count`` times, in seconds."""
        return parse_duration_s(self.within)

    @property
    def throttle_s(self) -> float:
        """The shortest time between two messages about the same subject, in seconds."""
        return parse_duration_s(self.throttle)

    @property
    def repeat_s(self) -> float:
        """The time after which a message is sent again while it lasts, in seconds; 0 for never."""
        return parse_duration_s(self.repeat)

    @property
    def counted(self) -> bool:
        """Whether it counts what happens, instead of looking at how things are."""
        return "count" in _USES[self.on]

    @property
    def threshold(self) -> tuple[float, bool]:
        """The number of ``above``, and whether it is a percentage of the limit. Raises ValueError."""
        return _number(self.above, self.metric)


class AlertChannel(Struct, frozen=True, kw_only=True):
    """One ``[alerts.channels.NAME]`` table. ``url_secret``, ``key`` and ``password`` are names of ``[secrets.NAME]``.

    ``server`` is ``HOST`` or ``HOST:PORT``. ``command`` is a program with its arguments, run without a shell.
    """

    kind: Literal["desktop", "webhook", "command", "email"]
    url: str = ""
    url_secret: str = ""
    key: str = ""
    shape: Literal["generic", "slack", "alertmanager"] = "generic"
    command: tuple[str, ...] = ()
    server: str = ""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""
    sender: str = ""
    recipients: tuple[str, ...] = ()
    timeout_s: Positive = 10.0

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the secrets that it needs."""
        return tuple(filter(None, (self.url_secret, self.key, self.password)))


class AlertOptions(Struct, frozen=True, kw_only=True):
    """The ``[alerts]`` table. ``keep_days``: how long a message is tried again, and an alert that is over is kept."""

    rules: dict[str, AlertRule] = field(default_factory=dict)
    channels: dict[str, AlertChannel] = field(default_factory=dict)
    keep_days: Positive = 7.0


Problem = tuple[str, str, str]
"""Where it is below ``alerts.``, what is wrong, and what to do."""


def problems(options: AlertOptions, secrets: Container[str]) -> Iterator[Problem]:
    """What is wrong with the rules and channels. ``secrets`` are the names that the configuration defines."""
    for name, rule in options.rules.items():
        for text, hint in _of_rule(rule, options.channels):
            yield f"rules.{name}", text, hint
    for name, channel in options.channels.items():
        for text, hint in _of_channel(channel, secrets):
            yield f"channels.{name}", text, hint


def _of_rule(rule: AlertRule, channels: Mapping[str, AlertChannel]) -> Iterator[tuple[str, str]]:
    uses = _USES[rule.on]
    for key in _set(rule):
        if key not in uses | _ALWAYS:
            yield f'{key} has no effect with on = "{rule.on}"', f'on = "{rule.on}" uses {", ".join(sorted(uses))}'
    for key in ("within", "for", "throttle", "repeat"):
        try:
            parse_duration_s(getattr(rule, "lasting" if key == "for" else key))
        except ValueError as error:
            yield f"{key}: {error}", f'{key} = "5m"'
    try:
        parse_filter(rule.filter)
    except ValueError as error:
        yield f"filter: {error}", SYNTAX
    yield from _words("states", rule.states, STATES)
    yield from _words("outcomes", rule.outcomes, OUTCOMES)
    yield from _words("to", rule.to, channels, "add [alerts.channels.NAME], or leave to out for all channels")
    if rule.on == "log":
        yield from _pattern(rule.pattern)
    if rule.on == "metric":
        yield from _above(rule)


def _set(table: Struct) -> Iterator[str]:
    """The keys that differ from their defaults."""
    for one in structs.fields(table):
        if getattr(table, one.name) != one.default:
            yield one.encode_name


def _words(key: str, words: tuple[str, ...], known: Collection[str], hint: str = "") -> Iterator[tuple[str, str]]:
    for word in words:
        if word not in known:
            near = nearest(word, known)
            yield (
                f"{key}: there is no {word!r}",
                f"did you mean {near}?" if near else hint or f"known: {', '.join(known)}",
            )


def _pattern(text: str) -> Iterator[tuple[str, str]]:
    if not text:
        yield "a rule about logs needs a pattern", 'pattern = "ERROR|FATAL"'
        return
    from sandbox_console.logs.pattern import compile_pattern  # 57 ms of CPU, for the expressions' engine

    try:
        compile_pattern(text)
    except UsageError as error:
        yield f"pattern: {error.message}", error.hint


def _above(rule: AlertRule) -> Iterator[tuple[str, str]]:
    if not rule.metric:
        yield "a rule about a metric needs its name", f'metric = "cpu"; known: {", ".join(METRICS)}'
        return
    try:
        rule.threshold  # noqa: B018 - it checks
    except ValueError as error:
        yield f"above: {error}", _EXAMPLES[rule.metric]


_EXAMPLES = {
    "cpu": "above = 90, in percent of one vCPU", "memory": 'above = "90%" of its limit, or above = "512M"',
    "network": 'above = "10M", in bytes per second', "disk": 'above = "10M", in bytes per second',
    "log": 'above = "1M", in bytes per second', "processes": "above = 100",
}  # fmt: skip


def _number(above: str | float, metric: str) -> tuple[float, bool]:
    if isinstance(above, int | float):
        return _positive(float(above)), False
    text = above.strip()
    if not text:
        raise ValueError("it is missing")
    share = text.endswith("%")
    if share and metric not in ("cpu", "memory"):
        raise ValueError(f"{text!r}: only cpu and memory have a percentage")
    plain = text.removesuffix("%").strip()
    try:
        return _positive(float(plain)), share and metric == "memory"
    except ValueError:
        if share or metric in ("cpu", "processes"):
            raise ValueError(f"{text!r} is not a number above 0") from None
    if plain[-1:] in "kK":
        return _positive(float(plain[:-1])) * 1024, False
    return parse_size_mib(plain) * float(1 << 20), False


def _positive(number: float) -> float:
    if not 0 < number < float("inf"):
        raise ValueError(f"{number:g} is not above 0")
    return number


def _of_channel(channel: AlertChannel, secrets: Container[str]) -> Iterator[tuple[str, str]]:
    uses = _SENDS[channel.kind]
    for key in _set(channel):
        if key not in uses | {"kind", "timeout_s"}:
            yield f'{key} has no effect with kind = "{channel.kind}"', f"it uses {', '.join(sorted(uses)) or 'no key'}"
    for name in channel.secrets:
        if name not in secrets:
            yield f"there is no secret {name!r}", f'add [secrets.{name}] with from = "file:PATH" or another source'
    if channel.kind == "webhook":
        yield from _webhook(channel)
    if channel.kind == "command" and not channel.command:
        yield "there is no command", 'command = ["/usr/local/bin/page-me", "--urgent"]'
    if channel.kind == "email":
        yield from _email(channel)


def _webhook(channel: AlertChannel) -> Iterator[tuple[str, str]]:
    if bool(channel.url) == bool(channel.url_secret):
        yield "it needs either url or url_secret", 'url = "https://example.com/alerts"'
        return
    if not channel.url:
        return
    try:
        parts = urlsplit(channel.url)
        host = parts.hostname or ""
        known = parts.scheme in ("http", "https") and bool(host) and (parts.port is None or parts.port > 0)
    except ValueError:
        known, host = False, ""
    if not known:
        yield "url is not an address of http or https", 'url = "https://example.com/alerts"'
    elif host in _SECRET_HOSTS or parts.username or parts.password:
        hint = 'url_secret = "NAME", and [secrets.NAME] with from = "file:PATH"'
        yield "this url is itself a secret, and does not belong into a configuration", hint


def _email(channel: AlertChannel) -> Iterator[tuple[str, str]]:
    host, _, port = channel.server.rpartition(":") if ":" in channel.server else (channel.server, "", "")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        yield "server is not a mail server", 'server = "smtp.example.com:587"'
    if not _address(channel.sender) or not channel.recipients or not all(map(_address, channel.recipients)):
        yield "it needs a sender and recipients", 'sender = "console@example.com", recipients = ["ops@example.com"]'
    if bool(channel.user) != bool(channel.password):
        yield "user and password belong together", 'user = "console", password = "NAME" of a [secrets.NAME]'
    if channel.password and channel.tls == "none":
        yield "a password is never sent without TLS", 'tls = "starttls" or "tls"'


def _address(text: str) -> bool:
    name, at, domain = text.rpartition("@")
    return bool(name and at and domain) and not any(char.isspace() or char in "<>,;\r\n" for char in text)
