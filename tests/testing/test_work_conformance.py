"""tandemlog.testing passes the suite of work queues; so does a node process, in tests/cluster."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from conformance.work_suite import WorkSuite
from tandemlog import Consumer, Message, Producer, WorkOptions
from tandemlog.testing import Cluster

SETTINGS = {1: {}, 2: {"replication": {"min_in_sync": 2}}}


@pytest.fixture(scope="module", params=SETTINGS, ids=["one node", "replicated"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    with Cluster(nodes=request.param, settings=SETTINGS[request.param]) as cluster:
        yield cluster.endpoints[0]


class TestInProcess(WorkSuite):
    """See the module."""


def test_pauses_end_when_the_clock_moves() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        with Producer(cluster.endpoint) as producer:
            producer.send(Message("orders", b"x"))
        with (
            Consumer(cluster.endpoint, group="billing") as consumer,
            consumer.work("orders", backoff=3_600, options=WorkOptions(linger_ms=0)) as work,
        ):
            first = work.poll(30_000)
            assert first is not None
            first.retry(sync=True)
            assert work.poll(200) is None
            cluster.clock.advance(timedelta(hours=1))
            again = work.poll(30_000)
            assert again is not None
            assert again.attempt == 2


def test_work_continues_after_a_change_of_master() -> None:
    with Cluster(topics={"orders": 2}, nodes=2) as cluster:
        with Producer(cluster.endpoint) as producer:
            producer.send_many("orders", [b"%d" % n for n in range(20)])
        with (
            Consumer(cluster.endpoint, group="billing") as consumer,
            consumer.work("orders", prefetch=5, options=WorkOptions(linger_ms=0)) as work,
        ):
            done, held = set(), []
            for _ in range(5):
                delivery = work.poll(30_000)
                assert delivery is not None
                held.append(delivery)
            held[0].ack(sync=True)
            done.add(held[0].body)
            cluster.stop_master()
            for delivery in held[1:]:
                delivery.ack(sync=True)
                done.add(delivery.body)
            while len(done) < 20:
                delivery = work.poll(30_000)
                assert delivery is not None
                assert delivery.body not in done
                delivery.ack(sync=True)
                done.add(delivery.body)
