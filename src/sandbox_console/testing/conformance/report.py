"""Prints one table of checks and backends at the end of a test run. Import the two hooks in a conftest.

With CONFORMANCE_RESULTS=FILE the results are also written there as JSON, in place of earlier results of these checks:
``{label: {topic: {check: [word, reason]}}}``. ``table.markdown`` makes a table for a page from such files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox_console.testing.conformance.table import Results

_results: Results = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a check ended. A failure of its set-up or tear-down counts as well."""
    place = dict(report.user_properties).get("conformance")
    if not isinstance(place, list) or (report.when != "call" and report.passed):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    gap = getattr(report, "wasxfail", None)
    if gap is not None:
        word, reason = "known gap", str(gap)
    elif report.skipped:
        word, reason = "unsupported", reason.removeprefix("Skipped: ")
    else:
        word = "pass" if report.passed else "FAIL"
    label, topic, check = place
    _results.setdefault(label, {}).setdefault(topic, {})[check] = [word, reason]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the table and the reasons below it."""
    if not _results:
        return
    labels = sorted(_results)
    checks = list(dict.fromkeys((t, c) for label in labels for t, found in _results[label].items() for c in found))
    width = max(len(check) for _, check in checks)
    terminalreporter.section("conformance")
    terminalreporter.line(" ".join([" " * width, *(f"{label:14}" for label in labels)]))
    reasons: set[str] = set()
    for topic, check in checks:
        cells = [_results[label].get(topic, {}).get(check, ["-", ""]) for label in labels]
        terminalreporter.line(" ".join([f"{check:{width}}", *(f"{word:14}" for word, _ in cells)]))
        reasons |= {
            f"{label}: {check}: {cell[0]}: {cell[1]}" for label, cell in zip(labels, cells, strict=True) if cell[1]
        }
    for reason in sorted(reasons):
        terminalreporter.line(reason)
    if file := os.environ.get("CONFORMANCE_RESULTS"):
        _write(Path(file))


def _write(path: Path) -> None:
    known: Results = json.loads(path.read_text()) if path.exists() else {}
    for label, topics in _results.items():
        for topic, found in topics.items():
            known.setdefault(label, {}).setdefault(topic, {}).update(found)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
