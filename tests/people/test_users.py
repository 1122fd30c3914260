"""The users of the file of credentials: passwords, roles, labels, and what a change takes away."""

from __future__ import annotations

import stat
import statistics
import time
from pathlib import Path

import pytest

from sandbox_console.errors import ConfigError, Conflict, NotFound, UsageError
from sandbox_console.model.access import FULL, Access, access, checked_labels, checked_role, limited_to
from sandbox_console.service.people import passwords
from sandbox_console.service.people.users import Users
from sandbox_console.service.tokens import Tokens

PASSWORD = "correct horse battery"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "tokens.json"


def test_a_user_is_known_by_name_and_password_and_the_password_is_stored_nowhere(path: Path) -> None:
    users = Users(path)
    ada = users.add("ada", Access("operator", {"team": "search"}), PASSWORD)
    assert users.with_password("ada", PASSWORD) == ada
    assert ada.access == Access("operator", {"team": "search"})
    for name, password in (
        ("ada", PASSWORD + "x"), ("ada", ""), ("Ada", PASSWORD), ("bob", PASSWORD), ("", ""), ("ada", "\udc80" * 12),
        ("ada", PASSWORD + "\0"), ("ada", "x" * 100_000),
    ):  # fmt: skip
        assert users.with_password(name, password) is None, (name, password[:20])
    assert PASSWORD not in path.read_text()
    assert "$argon2id$" in path.read_text()
    assert "argon2" not in repr(ada)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_user_without_a_password_cannot_log_in_with_any(path: Path) -> None:
    Users(path).add("proxied", Access("viewer"))
    assert Users(path).with_password("proxied", "") is None
    assert Users(path).with_password("proxied", PASSWORD) is None


def test_names_and_passwords_that_are_refused(path: Path) -> None:
    users = Users(path)
    for name in ("", "a b", "-x", "a\n", "a/b", "x" * 64, "é"):
        with pytest.raises(UsageError, match="not a name"):
            users.add(name, FULL, PASSWORD)
    for password in ("short", "x" * (passwords.LONGEST + 1)):
        with pytest.raises(UsageError, match="a password has"):
            users.add("ada", FULL, password)
    users.add("ada", FULL, PASSWORD)
    with pytest.raises(Conflict):
        users.add("ada", Access("viewer"))
    for wrong in (["team"], ["=x"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            checked_labels(wrong)
    with pytest.raises(UsageError, match="not a role"):
        checked_role("root")
    for unknown in (users.remove, users.change):
        with pytest.raises(NotFound):
            unknown("bob")


def test_a_change_is_seen_by_a_store_that_is_open_and_a_new_user_of_the_same_name_is_another(path: Path) -> None:
    seen, users = Users(path), Users(path)
    ada = users.add("ada", Access("viewer"), PASSWORD)
    assert seen.by_id(ada.id) == ada
    changed = users.change("ada", role="admin")
    assert seen.by_id(ada.id) == changed != ada
    assert users.change("ada", labels={"team": "search"}).access == Access("admin", {"team": "search"})
    before = seen.named("ada")
    assert users.change("ada", password="another long one") != before
    assert seen.with_password("ada", PASSWORD) is None
    users.remove("ada")
    assert seen.by_id(ada.id) is None
    assert users.add("ada", FULL).id != ada.id


def test_a_users_token_has_its_rights_and_goes_with_it(path: Path) -> None:
    users, tokens = Users(path), Tokens(path)
    ada = users.add("ada", Access("viewer", {"team": "search"}))
    token, text = tokens.add("ada.1", ["api"], user="ada")
    plain, _ = tokens.add("robot", ["api"])
    assert tokens.find(text, "api") == token
    assert tokens.owner(token) == ada
    assert tokens.access(token) == ada.access
    assert tokens.access(plain) == FULL
    users.change("ada", role="operator")
    assert tokens.access(token).role == "operator"
    with pytest.raises(NotFound):
        tokens.add("bob.1", ["api"], user="bob")
    users.remove("ada")
    assert tokens.find(text, "api") is None
    with pytest.raises(NotFound):
        tokens.access(token)
    assert list(tokens.every()) == [plain]


def test_a_file_of_before_there_were_users_is_read_and_written_as_before(path: Path) -> None:
    Tokens(path).add("robot", ["api"])
    assert "users" not in path.read_text()
    assert '"user"' not in path.read_text()
    Users(path).add("ada", FULL)
    assert [token.name for token in Tokens(path).every()] == ["robot"]
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="read by others"):
        Users(path).named("ada")


def test_the_time_of_a_check_does_not_tell_whether_a_name_exists(path: Path) -> None:
    """Not a limit in seconds: a check without hashing would take less than a tenth."""
    users = Users(path)
    users.add("ada", FULL, PASSWORD)
    users.add("proxied", FULL)
    taken: dict[str, list[float]] = {"ada": [], "nobody": [], "proxied": []}
    for _ in range(5):
        for name, times in taken.items():
            began = time.process_time()
            assert users.with_password(name, "wrong and long enough") is None
            times.append(time.process_time() - began)
    known, *others = (statistics.median(times) for times in taken.values())
    assert all(known / 3 < other < known * 3 for other in others), taken


def test_rights_end_with_their_block() -> None:
    assert access() == FULL
    with limited_to(lambda: Access("viewer", {"team": "search"})):
        assert access().role == "viewer"
        assert access().sees({"team": "search", "x": "y"})
        assert not access().sees({"team": "searching"})
        assert not access().sees({})
    assert access() == FULL
