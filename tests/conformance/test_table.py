"""docs/backends.md tells what the last runs told, of the checks that there are."""

from __future__ import annotations

import json
import re

from msgspec import structs
from tests.conformance.table import DOCUMENT, stored, table, written

from sandbox_console.backends import abilities
from sandbox_console.testing.conformance import BackendConformance, Profile
from sandbox_console.testing.conformance.table import markdown, merged


def test_the_document_has_the_stored_results() -> None:
    assert written() == table(stored()), "run: python -m tests.conformance.table"


def test_each_stored_run_asked_every_check_there_is() -> None:
    checks = {name for name in dir(BackendConformance) if name.startswith("test_")}
    for file in stored():
        for label, topics in json.loads(file.read_text()).items():
            asked = {re.sub(r"\[.*", "", check, flags=re.DOTALL) for found in topics.values() for check in found}
            missing, gone = sorted(checks - asked), sorted(asked - checks)
            # Whoever adds or renames a check asks the backends again: that is one command.
            command = f"make conformance  (or: python -m tests.conformance.refresh {file.stem})"
            assert not missing + gone, f"{label} was not asked {missing}, and was asked {gone}; run: {command}"
            assert "FAIL" not in {end[0] for found in topics.values() for end in found.values()}


def test_the_suite_is_as_large_as_it_says() -> None:
    assert len([name for name in dir(BackendConformance) if name.startswith("test_")]) >= 80


def test_the_document_names_every_field_and_ability() -> None:
    text = DOCUMENT.read_text()
    assert all(f"`{one.name}`" in text for one in structs.fields(Profile))
    names = [
        name
        for name, one in vars(abilities).items()
        if getattr(one, "_is_protocol", False) and name not in ("Protocol", "Process")
    ]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_table_tells_the_worst_of_a_checks_parameters_and_each_reason_once() -> None:
    one = {"a": {"files": {"test_x[1]": ["pass", ""], "test_x[2]": ["unsupported", "no\nway"], "test_y": ["pass", ""]}}}
    two = {"b": {"files": {"test_x[1]": ["known gap", "no way"]}}}
    assert markdown(merged([one, two])).splitlines() == [
        "### Files", "", "| check | a | b |", "|---|---|---|",
        "| x | unsupported <sup>1</sup> | known gap <sup>1</sup> |", "| y | pass | - |", "", "1. no way",
    ]  # fmt: skip
