"""The rules of FakeWork are those of the engine: it passes the suite that a node passes."""

from collections.abc import Iterator

import pytest

from conformance.work_suite import WorkSuite
from fakes.fake_cluster import running_cluster


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_cluster() as cluster:
        yield cluster.endpoints[0]


class TestFakeWork(WorkSuite):
    """See the module."""
