"""Every program of docs/work-queues.md and docs/cookbook.md runs, in the order of each page, on
nodes of tandemlog.testing."""

import importlib
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker

from documents.pages import DOCS, examples
from helpers.running import wait_until
from tandemlog import Admin
from tandemlog.testing import Cluster

ENDPOINT = "127.0.0.1:10911"
PROGRAM = re.compile(r"# (\w+)\.py\n")


@pytest.fixture
def endpoint() -> Iterator[str]:
    with Cluster(topics={"orders": 4}) as cluster:
        yield cluster.endpoint


def run(example: str, endpoint: str, page: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example.replace(ENDPOINT, endpoint), page, "exec"), names)
    return names


def test_the_page_of_work_queues(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = examples(DOCS / "work-queues.md")
    assert len(programs) >= 4
    for program in programs:
        run(program, endpoint, "work-queues.md")
    printed = capsys.readouterr().out
    assert printed.count("1 b'job ") == 10
    assert "10 done" in printed
    assert "there is no such printer" in printed


def test_the_cookbook(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = [each for each in examples(DOCS / "cookbook.md") if not PROGRAM.match(each)]
    poison, busy, schedule, faststream = (run(each, endpoint, "cookbook.md") for each in found)
    assert sorted(poison["paid"]) == [111, 142]
    printed = capsys.readouterr().out
    assert "3 ZeroDivisionError" in printed
    assert "1 JSONDecodeError" in printed
    assert len(set(busy["charged"])) == 5
    first, second, third = schedule["done"]
    assert second - first == third - second == schedule["EVERY"]
    with Admin(endpoint) as admin:
        assert admin.delayed("reports") == []
    assert faststream["booked"] == {1: 12.5, 2: 7.0}


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A worker of Celery sets up logging for its whole process, and switches other loggers off."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    loggers = [
        each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)
    ]
    before = [(each, each.disabled, each.propagate, each.level) for each in loggers]
    yield
    root.handlers[:], root.level = handlers, level
    for each, disabled, propagate, of_logger in before:
        each.disabled, each.propagate = disabled, propagate
        each.setLevel(of_logger)


@pytest.fixture
def modules(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The programs of the page that are modules, imported."""
    names = []
    for example in examples(DOCS / "cookbook.md"):
        if match := PROGRAM.match(example):
            names.append(match[1])
            path = tmp_path / f"{match[1]}.py"
            path.write_text(example.replace(ENDPOINT, endpoint), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        for name in names:
            sys.modules.pop(name, None)


@pytest.mark.usefixtures("own_logging")
def test_tasks_of_celery(modules: dict[str, Any]) -> None:
    tasks = modules["tasks"]
    with start_worker(tasks.app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        for number in range(5):
            tasks.add.delay(number, 1)
        wait_until("the tasks", lambda: len(tasks.results) == 5, 30)
    tasks.app.close()
    tasks.app.pool.force_close_all()
    assert sorted(tasks.results) == [1, 2, 3, 4, 5]
