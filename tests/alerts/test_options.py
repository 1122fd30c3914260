"""Rules and channels that cannot work are refused, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.alerts.conftest import write_config

from sandbox_console.errors import ConfigError
from sandbox_console.service.alert_options import AlertRule
from sandbox_console.service.config import Config, load
from sandbox_console.service.paths import find_paths

SECRET = '[secrets.KEY]\nfrom = "env:KEY"\n'


def loaded(home: Path, text: str) -> Config:
    write_config(home, text)
    return load(find_paths())


BAD = [
    ('[alerts.rules.a]\non = "stat"', "Invalid enum value 'stat'", ""),
    ('[alerts.rules.a]\non = "log"', "a rule about logs needs a pattern", "pattern ="),
    ('[alerts.rules.a]\non = "log"\npattern = "(a"', "is not a regular expression", "escape"),
    ('[alerts.rules.a]\non = "log"\npattern = "(?=a)b"', "is not a regular expression", "look-around"),
    ('[alerts.rules.a]\non = "log"\npatern = "x"', "unknown key alerts.rules.a.patern", "did you mean alerts.rules.a.pattern"),
    ('[alerts.rules.a]\non = "state"\npattern = "x"', 'pattern has no effect with on = "state"', "filter, for, states"),
    ('[alerts.rules.a]\non = "state"\nstates = ["exitd"]', "there is no 'exitd'", "did you mean exited"),
    ('[alerts.rules.a]\non = "state"\nfor = "soon"', "for: 'soon' is not a duration", 'for = "5m"'),
    ('[alerts.rules.a]\non = "state"\nto = ["ops"]', "to: there is no 'ops'", "alerts.channels"),
    ('[alerts.rules.a]\non = "state"\nfilter = "nam=x"', "'nam=x' is no test of a field", "FIELD=PATTERN"),
    ('[alerts.rules.a]\non = "metric"\nabove = 3', "needs its name", 'metric = "cpu"'),
    ('[alerts.rules.a]\non = "metric"\nmetric = "memory"', "above: it is missing", '"90%"'),
    ('[alerts.rules.a]\non = "metric"\nmetric = "log"\nabove = "90%"', "only cpu and memory", '"1M"'),
    ('[alerts.rules.a]\non = "metric"\nmetric = "cpu"\nabove = -1', "is not above 0", "above = 90"),
    ('[alerts.rules.a]\non = "denied"\ncount = 0', "`int` >= 1", ""),
    ('[alerts.rules.a]\non = "audit"\noutcomes = ["fail"]', "there is no 'fail'", "did you mean failed"),
    ('[alerts.channels.a]\nkind = "webhook"', "either url or url_secret", "url ="),
    ('[alerts.channels.a]\nkind = "webhook"\nurl = "file:///etc/passwd"', "not an address of http", "https://"),
    ('[alerts.channels.a]\nkind = "webhook"\nurl = "https://hooks.slack.com/services/T0/B0/x"', "itself a secret", "url_secret"),
    ('[alerts.channels.a]\nkind = "webhook"\nurl = "https://me:pw@example.com/"', "itself a secret", "url_secret"),
    ('[alerts.channels.a]\nkind = "webhook"\nurl_secret = "NONE"', "there is no secret 'NONE'", "[secrets.NONE]"),
    ('[alerts.channels.a]\nkind = "command"', "there is no command", "command ="),
    ('[alerts.channels.a]\nkind = "command"\ncommand = ["x"]\nurl = "https://x.example"', "url has no effect", "command"),
    ('[alerts.channels.a]\nkind = "email"\nserver = "x:y"\nsender = "a@b.c"\nrecipients = ["d@e.f"]', "not a mail server", "smtp."),
    ('[alerts.channels.a]\nkind = "email"\nserver = "x"\nsender = "a@b.c\\nBcc: z@z.z"\nrecipients = ["d@e.f"]', "a sender and recipients", "@"),
    (SECRET + '[alerts.channels.a]\nkind = "email"\nserver = "x"\nsender = "a@b.c"\nrecipients = ["d@e.f"]\nuser = "u"\n'
     'password = "KEY"\ntls = "none"', "a password is never sent without TLS", "starttls"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told", "hint"), BAD)
def test_a_mistake_is_named_with_what_to_write(home: Path, text: str, told: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(home, text)
    assert told in error.value.message
    assert hint in error.value.hint


def test_what_is_right_is_taken(home: Path) -> None:
    config = loaded(
        home,
        SECRET
        + """
[alerts.rules.oom]
on = "state"
states = ["oom"]
for = "10s"
[alerts.rules.loud]
on = "metric"
metric = "log"
above = "1M"
to = ["ops"]
[alerts.channels.ops]
kind = "webhook"
url = "http://127.0.0.1:9093/api/v2/alerts"
shape = "alertmanager"
key = "KEY"
""",
    )
    rules = config.alerts.rules
    assert (rules["oom"].lasting_s, rules["oom"].throttle_s, rules["loud"].threshold) == (
        10.0,
        300.0,
        (1048576.0, False),
    )
    assert config.alerts.channels["ops"].secrets == ("KEY",)


@pytest.mark.parametrize(
    ("metric", "above", "meant"),
    [("memory", "90%", (90.0, True)), ("memory", "512M", (512.0 * 2**20, False)), ("cpu", "150", (150.0, False)),
     ("cpu", "90%", (90.0, False)), ("disk", "64k", (65536.0, False)), ("processes", 100, (100.0, False))],
)  # fmt: skip
def test_thresholds(metric: str, above: object, meant: tuple[float, bool]) -> None:
    assert AlertRule(on="metric", metric=metric, above=above).threshold == meant  # type: ignore[arg-type]
