"""One Spark, and one cluster of nodes, for all tests that need one: to start them takes longer than
most of those tests."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fakes.spark_program import QUICK_PLANNERS
from helpers.running import Running, free_ports
from tandemlog import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def connect_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="session")
def spark(connect_port: int) -> "Iterator[SparkSession]":
    """Two slots, a failed task gets three more attempts; clients of Connect are let in too."""
    session: Any = pytest.importorskip("tandemlog.spark.session", reason="Spark is not installed")
    connect = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(connect_port),
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", QUICK_PLANNERS, prepend=os.pathsep)
        made = session.spark_session("tests", "local[2,4]", session.Profile.TEST, connect)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A master and a slave."""
    with Running(tmp_path_factory.mktemp("live"), slaves=1) as running:
        yield running


@pytest.fixture
def topics(cluster: Running, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two topics of the test's own, of four queues each."""
    name = request.node.name.replace("[", "-").rstrip("]")[:100]
    pair = (f"{name}-a", f"{name}-b")
    with Admin(cluster.endpoints) as admin:
        for topic in pair:
            admin.create_topic(topic, 4)
    return pair
