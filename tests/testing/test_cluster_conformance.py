"""tandemlog.testing passes the suite of a cluster; so does a node process, in tests/cluster."""

from collections.abc import Iterator

import pytest

from conformance.cluster_suite import ClusterSuite
from tandemlog.testing import Cluster

SETTINGS = {
    1: {},
    # a slave stores everything too
    2: {"replication": {"min_in_sync": 2}},
}


@pytest.fixture(scope="module", params=SETTINGS, ids=["one node", "replicated"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    with Cluster(nodes=request.param, settings=SETTINGS[request.param]) as cluster:
        yield cluster.endpoints[0]


class TestInProcess(ClusterSuite):
    """See the module."""
