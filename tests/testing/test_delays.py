"""Messages that come later in tandemlog.testing: a test moves the date, and they come."""

from datetime import timedelta

import pytest

from tandemlog import Message, Producer
from tandemlog.errors import NotWaitingError
from tandemlog.testing import Cluster


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_moved_date_lets_messages_come(nodes: int) -> None:
    with (
        Cluster(topics={"orders": 1}, nodes=nodes) as cluster,
        Producer(cluster.endpoints) as producer,
    ):
        sent = producer.send(Message("orders", b"later"), delay=timedelta(hours=3)).result(60)
        gone = producer.send(Message("orders", b"gone"), delay=timedelta(hours=3)).result(60)
        producer.recall("orders", gone.recall_handle)
        cluster.clock.advance(timedelta(hours=2, minutes=59))
        producer.send(Message("orders", b"now")).result(60)
        assert [each.body for each in cluster.messages("orders")] == [b"now"]
        cluster.clock.advance(timedelta(minutes=1, seconds=1))
        while len(cluster.messages("orders")) < 2:
            pass
        assert [each.body for each in cluster.messages("orders")] == [b"now", b"later"]
        with pytest.raises(NotWaitingError):
            producer.recall("orders", sent.recall_handle)


def test_what_waits_comes_once_after_a_failover() -> None:
    with Cluster(topics={"orders": 1}, nodes=3) as cluster:
        with Producer(cluster.endpoints) as producer:
            for number in range(20):
                message = Message("orders", b"%d" % number, queue_id=0)
                producer.send(message, delay=timedelta(minutes=1 + number % 2)).result(60)
            cluster.clock.advance(timedelta(minutes=1, seconds=1))
            while len(cluster.messages("orders")) < 10:
                pass
            cluster.stop_master()
            cluster.clock.advance(timedelta(minutes=1, seconds=1))
            while len(cluster.messages("orders")) < 20:
                pass
            bodies = [each.body for each in cluster.messages("orders")]
        assert sorted(bodies) == sorted(b"%d" % number for number in range(20))
