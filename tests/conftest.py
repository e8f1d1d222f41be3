"""Groups whose needs are missing are skipped, or fail where they must run (see helpers/needs.py).

Those that need more than one process run in lanes side by side.
"""

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import tandemlog  # noqa: F401 - before gRPC, which a test may load first: see there
from helpers import borrowed_disk, needs
from helpers.closed_loops import leave_out_closed_loops
from helpers.second_runs import SecondRuns, give_second_runs

# The same examples in every run, and none fails because the machine is busy.
settings.register_profile("tandemlog", deadline=None, derandomize=True)
settings.load_profile("tandemlog")

# Nodes inherit it, however a test starts them.
os.environ.update(borrowed_disk.ENVIRONMENT)

leave_out_closed_loops()

# A shell starts what runs in the background with SIGINT ignored, and every program started from
# there inherits that: one that a test interrupts would not notice.
signal.signal(signal.SIGINT, signal.default_int_handler)


@cache
def groups_asked_for(expression: str) -> frozenset[str]:
    """The markers of which a test must have one to be chosen by `-m`; empty where it needs none."""
    asked = frozenset(re.findall(r"\w+", re.sub(r"\band +not +\w+", "", expression)))
    return frozenset() if "not" in asked else asked - {"and", "or"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules without the markers that are asked for are not even imported: to collect every test
    takes longer than most groups."""
    groups = groups_asked_for(config.getoption("markexpr"))
    if not groups or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return not groups & set(re.findall(r"\bmark\.(\w+)", text)) or None


LANES = ("elections", "live", "session", "brokers", "machine", "programs")
"""Which process runs a test of the groups that start processes, Spark, brokers or containers.

elections   clusters that elect, which are mostly waited for
live        nodes and brokers that follow each other, which are waited for too
session     tests that share a Spark session, and pages that are tried
brokers     other brokers, network namespaces, and what is short
machine     disks, containers and environments: a container that starts holds the disks that are
            mounted just then
programs    the rest, programs of our own

A test names its lane by the marker `lane`; without one it is in that of its group. The lanes begin
in this order: the longest first, and early those that mostly wait. They take about the same time,
and three at once keep two processors busy: a fourth makes each of them slower and all of them no
faster.
"""
LANE_OF_GROUP = {
    "spark": "session",
    "interop": "brokers",
    "netns": "brokers",
    "fault": "machine",
    "docker": "machine",
    "browser": "session",
}
LANES_FILE = pytest.StashKey[Path]()


def lane_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("lane")
    if marker is None:
        groups = (group for group in LANE_OF_GROUP if item.get_closest_marker(group) is not None)
        return LANE_OF_GROUP.get(next(groups, ""), "programs")
    (name,) = marker.args
    if name not in LANES:
        raise pytest.UsageError(f"{item.nodeid}: {name} is none of the lanes {', '.join(LANES)}")
    return str(name)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondRuns())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    give_second_runs(items, Path(__file__).parent)
    for item in items:
        for group in needs.NEEDS:
            if item.get_closest_marker(group) is None:
                continue
            reason = needs.missing(group)
            if reason and not needs.must_run():
                item.add_marker(pytest.mark.skip(reason=f"{group}: {reason}"))
    worker = getattr(config, "workerinput", {})
    if worker.get("workerid") == "gw0":
        lanes = {item.nodeid: lane_of(item) for item in items}
        Path(worker["lanes_file"]).write_text(json.dumps(lanes))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's controller collects no tests: one of its workers tells it their lanes by a file."""
    if LANES_FILE not in node.config.stash:
        folder = tempfile.TemporaryDirectory(prefix="tandemlog-lanes-")
        node.config.add_cleanup(folder.cleanup)
        node.config.stash[LANES_FILE] = Path(folder.name) / "lanes.json"
    node.workerinput["lanes_file"] = str(node.config.stash[LANES_FILE])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadscope` is by lane: for the marks of `--dist loadgroup` xdist changes the ids of
    tests, which pytest 9.2 does not let it."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByLane(LoadScopeScheduling):
        @cached_property
        def _lanes(self) -> dict[str, str]:
            """By test; all workers have collected them when the first is asked for."""
            return dict(json.loads(config.stash[LANES_FILE].read_text()))

        def _split_scope(self, nodeid: str) -> str:
            return self._lanes[nodeid]

        def _assign_work_unit(self, node: Any) -> None:
            if self.workqueue:
                first = min(self.workqueue, key=LANES.index)
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return ByLane(config, log)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """As `tmp_path`, on the disk of this checkout: that may be in memory."""
    parent = Path(__file__).parent.parent / "build"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="test-", dir=parent) as folder:
        yield Path(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for group in needs.NEEDS:
        if item.get_closest_marker(group) is not None and needs.must_run():
            reason = needs.missing(group)
            if reason:
                pytest.fail(f"{group} must run with CI=true, but: {reason}", pytrace=False)
