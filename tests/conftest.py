"""Groups whose needs are missing are skipped, or fail where they must run (see helpers/needs.py).

Those that need more than one process run in lanes side by side.
"""

import os
import signal
from typing import Any

import pytest
from hypothesis import settings

import tandemlog  # noqa: F401 - before gRPC, which a test may load first: see there
from helpers import borrowed_disk, needs

# The same examples in every run, and none fails because the machine is busy.
settings.register_profile("tandemlog", deadline=None, derandomize=True)
settings.load_profile("tandemlog")

# Nodes inherit it, however a test starts them.
os.environ.update(borrowed_disk.ENVIRONMENT)

# A shell starts what runs in the background with SIGINT ignored, and every program started from
# there inherits that: one that a test interrupts would not notice.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for group in needs.NEEDS:
            if item.get_closest_marker(group) is None:
                continue
            reason = needs.missing(group)
            if reason and not needs.must_run():
                item.add_marker(pytest.mark.skip(reason=f"{group}: {reason}"))


LANES = {
    "spark": "session",
    "documents": "session",
    "packaging": "machine",
    "fault": "machine",
    "docker": "machine",
    "failover": "elections",
    "interop": "brokers",
    "chaos": "brokers",
    "monitoring": "brokers",
    "upgrade": "brokers",
}


LANES_BY_TIME = ("elections", "live", "session", "brokers", "machine", "programs")
"""In this order they begin: the longest first, and early those that mostly wait."""
LIVE = ("test_following.py", "test_live_page.py", "test_rocketmq_slave.py", "test_tooling.py")


def lane_of(nodeid: str) -> str:
    """Which process runs a test of the groups that start processes, Spark, brokers or containers.

    One is for those that share a Spark session, and for pages that are tried; one for disks and
    containers, since a container that starts holds the disks that are mounted just then; one for
    elections, which are mostly waited for; one for nodes and brokers that follow each other, which
    are waited for too; one for other brokers and what is short; one for the rest, programs of our
    own. They take about the same time, and three at once keep two processors busy: a fourth makes
    each of them slower and all of them no faster. Two tests that start half a dozen of Java at once
    do so one after the other.
    """
    if "test_coordinator_backup" in nodeid:
        return "brokers"
    if nodeid.split("::")[0].rsplit("/", 1)[-1] in LIVE:
        return "live"
    if "test_on_a_standalone_cluster" in nodeid:
        return "programs"
    return LANES.get(nodeid.split("/")[1], "programs")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadscope` is by lane: for the marks of `--dist loadgroup` xdist changes the ids of
    tests, which pytest 9.2 does not let it."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByLane(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return lane_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            if self.workqueue:
                first = min(self.workqueue, key=LANES_BY_TIME.index)
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return ByLane(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for group in needs.NEEDS:
        if item.get_closest_marker(group) is not None and needs.must_run():
            reason = needs.missing(group)
            if reason:
                pytest.fail(f"{group} must run with CI=true, but: {reason}", pytrace=False)
