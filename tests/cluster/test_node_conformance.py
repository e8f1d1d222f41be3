"""A node process passes the suites of a cluster and of work queues; so does tandemlog.testing, in
tests/testing."""

from collections.abc import Iterator

import pytest

from conformance.cluster_suite import ClusterSuite
from conformance.work_suite import WorkSuite
from helpers.running import Running

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("node")
    with Running(folder, store={"commit_log_file_size": 16 << 20}) as running:
        yield running.master.endpoint


class TestNodeProcess(ClusterSuite):
    """See the module."""


class TestWorkOfANodeProcess(WorkSuite):
    """See the module."""
