"""What the configuration refuses, with the place and the reason."""

from __future__ import annotations

import platformdirs
import pytest

from sandbox_console.__main__ import main
from sandbox_console.cli.run import unexpected
from sandbox_console.errors import ConfigError
from sandbox_console.service.config import Config, load
from sandbox_console.service.paths import Paths


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    def read(text: str) -> Config:
        file = tmp_path / "config.toml"
        file.write_text(text)
        return load(Paths(file, tmp_path))

    return read


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tui]\nstats_interval_s = 0", "$.tui.stats_interval_s"),
        ("[tui]\nstats_interval_s = -1.5", "> 0"),
        ("[tui]\nlog_memory_mib = 0", "$.tui.log_memory_mib"),
        ('[tui]\nlog_memory_mib = "much"', "$.tui.log_memory_mib"),
        ("[logs]\nretain_mib = 0", ">= 1"),
        ("[audit]\nsegment_mib = 0", "$.audit.segment_mib"),
        ("[audit]\nkeep_segments = 0", "$.audit.keep_segments"),
        ("[audit]\nkeep_days = 0", "$.audit.keep_days"),
        ("[audit.ship]\ninterval_s = 0", "$.audit.ship.interval_s"),
        ("[recording]\nmax_mib = 100\nkeep_mib = 50", "recording.keep_mib is less"),
        ('[recording]\nmode = "sometimes"', "$.recording.mode"),
        ("[recordings]\nmode = 'off'", "recording"),
        ("[tui]\nthem = 'x'", "theme"),
        ("[secrets.X]\nfrom = 'nowhere'", "secrets.X"),
        ("[policy]\negress = ['https://x']", "policy.egress"),
        ("= 3", "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(loaded, text, told):
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_a_file_that_cannot_be_opened_is_not_called_bad_toml(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(Paths(tmp_path, tmp_path), required=True)
    assert caught.value.message == f"{tmp_path} cannot be read: Is a directory"
    assert caught.value.hint == f"see its owner and mode: ls -ld {tmp_path}"


def test_a_user_without_a_home_is_told_so_by_every_platformdirs(monkeypatch, capsys):
    def none(_name):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("SANDBOX_CONSOLE_HOME", raising=False)
    monkeypatch.setattr(platformdirs, "user_config_path", none)
    assert main(["ls"]) == 2
    assert capsys.readouterr().err.startswith("error: this user has no home folder to keep state in\nhint: set HOME")
    assert "not written" in unexpected(ValueError()).hint


def test_what_can_be_is_taken(loaded):
    config = loaded("[tui]\nstats_interval_s = 1\n[audit]\nkeep_days = 0.5\n[recording]\nmode = 'required'")
    assert (config.tui.stats_interval_s, config.audit.keep_days, config.recording.mode) == (1.0, 0.5, "required")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# a\n[tui]\n\nthem = 'x'\n", 4),
        ("# a\n[tui] # b\nstats_interval_s = 0\n", 3),
        ("tui.stats_interval_s = 0\n", 1),
        ("[audit]\nkeep_days = 3\n[audit.ship]\ninterval_s = 0\n", 4),
        ("[secrets.A]\nfrom = 'env:X'\n\n[secrets.B]\nfrom = 'nowhere'\n", 4),
        ("[secrets.A]\nfrom = 'env:X'\n[secrets.B]\nfrom = 'env:Y'\ntimeout_s = 'x'\n", 5),
        ("[secrets.A]\nfrom = 'env:X'\ntimeout_s = 2\n[secrets.B]\nfrom = 'env:Y'\ntimeout_s = 'x'\n", None),
        ("[secrets]\nA = { from = 'env:X', hosts = 1 }\n", 2),
        ("[policy]\n\negress = ['https://x']\n", 3),
        ("tui = 3\n", 1),
        ("x = [\n  1,\n]\n[tui]\ntheme = 'x'\nunknown = 1\n", 1),
    ],
)
def test_an_error_names_the_line_or_none(loaded, text, line):
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    named = [word for word in caught.value.message.split(":")[0].split(", ") if word.startswith("line ")]
    assert named == ([f"line {line}"] if line else []), caught.value.message
