"""A test over real sockets, processes or disks that fails is run once more, and is named.

    fails, fails      failed
    fails, passes     passed, listed with its failure under "passed when run again"
    more than ALLOWED of the latter in one run: the run fails

TANDEMLOG_ONE_RUN=1 in the environment gives no second run: for who looks for such tests.

What plays with an injected clock, disk and network gives the same result each time, so it has one
run. See docs/decisions/0082-a-second-run-for-real-time.md.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

ALLOWED = 3
"""In one run of `make fast` or `make slow`, of about 11,400 and 490 tests."""
EXACT = frozenset({"format", "storage", "ha", "sim", "model"})
"""Folders of tests/ whose tests depend on nothing but their input."""


def give_second_runs(items: Sequence[pytest.Item], tests: Path) -> None:
    """Mark those of `items` that depend on real time. `tests`: the folder of all tests."""
    for item in items:
        folder, *below = item.path.relative_to(tests).parts
        exact = not below or folder in EXACT or item.get_closest_marker("sim") is not None
        if not exact and not os.environ.get("TANDEMLOG_ONE_RUN"):
            item.add_marker(pytest.mark.flaky(reruns=1))


class SecondRuns:
    """The plugin that counts them, in the process that reports."""

    def __init__(self) -> None:
        self._repeated: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) == "rerun":
            self._repeated.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self._repeated) > ALLOWED and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = {report.nodeid for report in terminalreporter.stats.get("failed", ())}
        passed = [report for report in self._repeated if report.nodeid not in failed]
        if passed:
            terminalreporter.section(f"passed when run again ({ALLOWED} allowed)")
        for report in passed:
            terminalreporter.write_line(f"{report.nodeid}\n{report.longreprtext}\n")
