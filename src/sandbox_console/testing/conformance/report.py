"""One table at the end of a test run: check x backend. Import the two hooks in a conftest."""

from __future__ import annotations

from typing import Any

import pytest

_results: dict[str, dict[str, tuple[str, str]]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a check ended; a failure of its set-up or tear-down counts as well."""
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
    label, check = place
    _results.setdefault(check, {})[label] = (word, reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the table and the reasons below it."""
    if not _results:
        return
    labels = sorted({label for row in _results.values() for label in row})
    width = max(map(len, _results))
    terminalreporter.section("conformance")
    terminalreporter.line(" ".join([" " * width, *(f"{label:14}" for label in labels)]))
    reasons: set[str] = set()
    for check, row in _results.items():
        words = [row.get(label, ("-", ""))[0] for label in labels]
        terminalreporter.line(" ".join([f"{check:{width}}", *(f"{word:14}" for word in words)]))
        reasons |= {f"{label}: {check}: {word}: {reason}" for label, (word, reason) in row.items() if reason}
    for reason in sorted(reasons):
        terminalreporter.line(reason)
