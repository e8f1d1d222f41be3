"""Errors that a new user meets first: each names the thing, the place and the way out."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from tandemlog import Admin, ConnectionOptions, Consumer, Message, Producer, SendManyResult, errors
from tandemlog.produce.producer_options import ProducerOptions

NOWHERE = "127.0.0.1:1"
SHORT = ConnectionOptions(connect_timeout_ms=300)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=0) as cluster:
        with Admin(cluster.endpoints) as admin:
            admin.create_topic("orders", queues=1)
        yield cluster


def test_a_wrong_endpoint_is_named_after_a_short_time() -> None:
    started = time.monotonic()
    with pytest.raises(errors.NoMasterError, match=r"127.0.0.1:1 \(.*refused") as raised:
        Producer(NOWHERE, ProducerOptions(connection=SHORT))
    assert "--endpoint" not in str(raised.value)
    refused = pytest.raises(errors.NodeUnavailableError, match=r"127.0.0.1:1 \(.*refused")
    with Consumer(NOWHERE, connection=SHORT) as consumer, refused:
        consumer.follow("orders")
    assert time.monotonic() - started < ConnectionOptions().retry_timeout_ms / 1000


def test_a_cluster_without_nodes_is_an_error() -> None:
    with Admin(NOWHERE, connection=SHORT) as admin, pytest.raises(errors.NoNodeError):
        admin.cluster()


def test_wrong_arguments(cluster: ThreadedCluster) -> None:
    four = pytest.raises(errors.InvalidArgumentError, match="sum of 4")
    with Admin(cluster.endpoints) as admin, four:
        admin.create_topic("x", perm="r")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="master, slave, any"):
        Consumer(cluster.endpoints, read_from="slaves")


def test_messages_that_cannot_be_sent(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        with pytest.raises(errors.InvalidMessageError, match="must be bytes, not NoneType"):
            producer.send(Message("orders", None))  # type: ignore[arg-type]
        for keys in ("", "k"):
            with pytest.raises(errors.InvalidMessageError, match="one tag"):
                producer.send(Message("orders", b"", tags="a||b", keys=keys))


def test_an_unknown_topic_says_how_to_make_it(cluster: ThreadedCluster) -> None:
    proposed = pytest.raises(errors.UnknownTopicError, match="did you mean orders")
    with Producer(cluster.endpoints) as producer, proposed as raised:
        producer.send(Message("order", b""))
    assert "create_topic('order')" in str(raised.value)


def test_a_result_of_many_prints_in_one_line() -> None:
    many = np.zeros(100_000, np.int64)
    result = SendManyResult(100_000, 0, 2, 9, "h:1", many.astype(np.int32), many, many)
    assert len(repr(result)) < 120
