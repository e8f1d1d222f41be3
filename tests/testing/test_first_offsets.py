"""Where a group begins, and where it was reset to, is there after a planned stop of the master, in
the moment after it was acknowledged."""

import time
from collections.abc import Iterator

import pytest

from tandemlog import Admin, Consumer, FollowOptions, Message, Producer, ProducerOptions, errors
from tandemlog.testing import Cluster

WITHIN_S = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}, nodes=3) as cluster:
        yield cluster


def put(cluster: Cluster, *bodies: bytes) -> None:
    with Producer(cluster.endpoint, ProducerOptions(linger_ms=0)) as producer:
        for body in bodies:
            producer.send(Message("orders", body, queue_id=0)).result(60)


def committed(cluster: Cluster) -> dict[tuple[str, int], int]:
    with Consumer(cluster.endpoint, group="svc") as consumer:
        return dict(consumer.committed())


def test_what_is_sent_while_no_member_runs_is_not_lost(cluster: Cluster) -> None:
    put(cluster, b"old-0", b"old-1")
    options = FollowOptions(auto_commit_ms=None)
    with (
        Consumer(cluster.endpoint, group="svc", options=options) as consumer,
        consumer.follow("orders", start="latest") as stream,
    ):
        until = time.monotonic() + WITHIN_S
        while not stream.assignment and time.monotonic() < until:
            try:
                stream.next_batch(timeout_ms=10)
            except TimeoutError:
                continue
        cluster.stop_master()
    assert committed(cluster) == {("orders", 0): 2}
    put(cluster, b"while-down")
    with (
        Consumer(cluster.endpoint, group="svc") as consumer,
        consumer.follow("orders", start="latest") as stream,
    ):
        batch = stream.next_batch(timeout_ms=WITHIN_S * 1000)
        assert batch is not None
        assert [message.body for message in batch] == [b"while-down"]


def test_a_group_stands_where_it_was_reset_to(cluster: Cluster) -> None:
    put(cluster, *(b"%d" % number for number in range(10)))
    with Consumer(cluster.endpoint, group="svc") as consumer:
        consumer.commit({("orders", 0): 10})
    with Admin(cluster.endpoint) as admin:
        admin.reset_offsets("svc", to="earliest")
    cluster.stop_master()
    assert committed(cluster) == {("orders", 0): 0}


def test_a_deleted_group_begins_anew(cluster: Cluster) -> None:
    put(cluster, b"0", b"1")
    with Consumer(cluster.endpoint, group="svc") as consumer:
        consumer.commit({("orders", 0): 2})
    with Admin(cluster.endpoint) as admin:
        admin.delete_group("svc")
    cluster.stop_master()
    assert committed(cluster) == {}
    with Admin(cluster.endpoint) as admin, pytest.raises(errors.UnknownGroupError):
        admin.describe_group("svc")
