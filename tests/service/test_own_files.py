"""Every file that the console keeps for itself, damaged in every way: nothing hangs, is followed, or is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from sandbox_console.errors import ConfigError, ConsoleError, SecretError
from sandbox_console.hostfs import own_files
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.recording.cast import read_events, read_header
from sandbox_console.service.alerts.store import AlertStore
from sandbox_console.service.config import load
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.service.paths import Paths
from sandbox_console.service.presets import load_presets
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.known_names import KnownNames
from sandbox_console.service.reads.leaks import fingerprint_key
from sandbox_console.service.reads.retained_logs import Retained
from sandbox_console.service.sessions.shell_records import ShellRecord, ShellRecords
from sandbox_console.service.templates import Templates
from sandbox_console.service.tokens import Tokens
from sandbox_console.tui.fleet.columns import ColumnChoice
from sandbox_console.tui.fleet.saved_views import Views
from sandbox_console.tui.form.form_draft import DraftFile
from sandbox_console.tui.main.split import Split
from sandbox_console.tui.shell.shell_choice import ShellChoices

REF = SandboxRef("fake", "local", "abc")
VICTIM = b"not the console's\n"
pytestmark = pytest.mark.timeout(30)


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


def huge(path: Path, victim: Path) -> None:
    path.touch()
    os.truncate(path, 5 << 30)


def holding(content: bytes) -> Callable[[Path, Path], None]:
    def write(path: Path, victim: Path) -> None:
        path.write_bytes(content)

    return write


DAMAGES = {
    "fifo": fifo,
    "link": link,
    "hard link": hard_link,
    "folder": folder,
    "huge": huge,
    "half": holding(b'{"tokens": [{"id": "0'),
    "wrong types": holding(b'{"tokens": 5, "columns": 5, "presets": 3, "names": "x", "share": "7"}'),
    "another kind": holding(b"[1, 2, 3]"),
    "deep": holding(b"[" * 100_000),
    "deep table": holding(b"x = " + b"[" * 100_000),
    "NUL": holding(b"\0" * 4096),
    "not UTF-8": holding(b'{"names": [["\xff\xfe"]], "\xff": "\xc3"}'),
}


class Own(NamedTuple):
    """A file, what reads it as the console does, and how a damaged one is told: renamed, or as an error or a problem."""

    name: str
    read: Callable[[Path], object]
    default: object = None
    error: type[ConsoleError] | None = None


def drafts(home: Path) -> object:
    draft = DraftFile(home / "drafts", "about")
    try:
        return draft.take()
    finally:
        draft.close()


def alerts(home: Path) -> object:
    store = AlertStore(home)
    try:
        return store.alerts()
    finally:
        store.close()


def record(home: Path) -> object:
    """As `LostShells` treats a record whose process is gone."""
    (home / "shells").chmod(0o700)
    for held in ShellRecords(home / "shells").lost():
        try:
            return held.read(ShellRecord)
        except (OSError, ValueError):
            held.set_aside("it is no record of a shell")
    return None


RENAMED = [
    Own("views.json", lambda home: Views(home, {}).names, []),
    Own("columns.json", lambda home: list(ColumnChoice(home).chosen.widths), []),
    Own("layout.json", lambda home: Split(home).share),
    Own("shells.json", lambda home: ShellChoices(home, bool).of(REF).shell, ""),
    Own(f"drafts/{DraftFile(Path(), 'about')._key}-00000000.json", drafts),
    Own("names/fake%2Flocal.json", lambda home: KnownNames(home / "names").of(("fake", "local")).names, ()),
    Own("alerts.db", alerts, []),
    Own("shells/0123456789ab.json", record),
]


def paths(home: Path) -> Paths:
    return Paths(home / "config.toml", home)


def template(home: Path) -> None:
    [found] = Templates(home / "templates", _NoConfig, None, None).every()
    if found.problem:
        raise ConfigError(found.problem)


class _NoConfig:
    templates: ClassVar[dict[str, Any]] = {}


def presets(home: Path) -> None:
    _, problem = load_presets(home / "config.toml")
    if problem:
        raise ConfigError(problem)


TOLD = [
    Own("tokens.json", lambda home: Tokens(home / "tokens.json").every(), error=ConfigError),
    Own("shares.json", lambda home: shared_folders.read(home).all, error=ConfigError),
    Own("fingerprint.key", fingerprint_key, error=SecretError),
    Own("config.toml", lambda home: load(paths(home)), error=ConfigError),
    Own("presets.toml", presets, error=ConfigError),
    Own("templates/x.toml", template, error=ConfigError),
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder, in which nothing has been told yet."""
    monkeypatch.setattr(own_files, "_seen", set())
    own_files.told()
    where = tmp_path / "home"
    where.mkdir(mode=0o700)
    return where


def damaged(home: Path, own: Own, damage: str) -> tuple[Path, Path]:
    path = home / own.name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    victim = home.parent / "victim"
    victim.write_bytes(VICTIM)
    victim.chmod(0o600)
    DAMAGES[damage](path, victim)
    if damage not in ("link", "folder"):
        path.chmod(0o600)
    return path, victim


def what(path: Path) -> tuple[object, ...]:
    st = path.lstat()
    return st.st_ino, st.st_mode, st.st_size


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("own", RENAMED, ids=lambda own: own.name)
def test_a_damaged_file_is_kept_and_told_once_and_the_console_goes_on(home, own, damage):
    path, victim = damaged(home, own, damage)
    before = what(path)
    assert own.read(home) == own.default
    kept = path.with_name(f"{path.name}.damaged")
    assert what(kept) == before, "kept as it was"
    told = own_files.told()
    assert [path.name in text and f"{path.name}.damaged" in text for text in told] == [True], told
    assert own.read(home) == own.default
    assert not own_files.told()
    assert victim.read_bytes() == VICTIM
    DAMAGES["half"](path, victim)
    assert own.read(home) == own.default
    assert what(kept) == before, "never overwritten"
    assert path.with_name(f"{path.name}.damaged-2").exists()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("own", TOLD, ids=lambda own: own.name)
def test_a_damaged_file_that_matters_is_an_error_and_stays(home, own, damage):
    path, victim = damaged(home, own, damage)
    before = what(path)
    with pytest.raises(ConsoleError) as raised:
        own.read(home)
    assert isinstance(raised.value, own.error)
    assert raised.value.code
    assert str(path) in raised.value.message
    assert what(path) == before
    assert victim.read_bytes() == VICTIM


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_hold_still_holds_and_says_so(home, damage):
    holds = Holds(home / "quarantine")
    path, victim = damaged(home, Own(f"quarantine/{holds._path(str(REF)).name}", str), damage)
    hold = holds.get(REF)
    assert hold is not None
    assert "damaged" in hold.label
    assert os.path.lexists(path)
    assert victim.read_bytes() == VICTIM


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_log_or_recording_is_listed_as_that_or_left_out(home, damage):
    retained = Retained(home / "logs", 1 << 20, 1 << 20)
    path, victim = damaged(home, Own(f"logs/{retained._path(REF).name}", str), damage)
    assert retained._listing() == []
    list(retained._items(REF))
    cast, _ = damaged(home, Own("recordings/x.cast", str), damage)
    with pytest.raises((OSError, ValueError)):
        read_header(cast)
    with suppress(OSError):
        assert not list(read_events(cast))
    assert os.path.lexists(path)
    assert victim.read_bytes() == VICTIM


def test_good_views_stay_when_some_are_not(home):
    good = {"filter": "name=web"}
    (home / "views.json").write_text(json.dumps({"good": good, "bad": 5}))
    assert Views(home, {}).names == ["good"]
    assert "bad" in (home / "views.json.damaged").read_text()
    assert list(json.loads((home / "views.json").read_text())) == ["good"]


def test_what_is_planted_for_the_part_of_a_file_is_not_written_through(home):
    victim = home.parent / "victim"
    victim.write_bytes(VICTIM)
    part = home / f".layout.json.{os.getpid()}.part"
    for plant in (lambda: part.symlink_to(victim), lambda: part.hardlink_to(victim), lambda: os.mkfifo(part)):
        plant()
        own_files.write_own(home / "layout.json", b"{}")
        assert not os.path.lexists(part)
    assert victim.read_bytes() == VICTIM
    assert (home / "layout.json").stat().st_mode & 0o777 == 0o600


def test_a_whole_file_is_read(home):
    """So that the tests above show something."""
    (home / "shells.json").write_text(json.dumps({str(REF): {"shell": "/bin/ash"}}))
    assert ShellChoices(home, bool).of(REF).shell == "/bin/ash"
    (home / "shares.json").write_text(json.dumps({"fake/local": ["/srv/x"]}))
    assert shared_folders.read(home).all == {"/srv/x"}
    known = KnownNames(home / "names")
    known.asked(("fake", "local"), "box")
    assert KnownNames(home / "names").of(("fake", "local")).holds("box")
    assert not own_files.told()
