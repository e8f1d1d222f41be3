"""Which queues may be asked for."""

import pytest

from fakes.stores import Bench
from tandemlog.v1 import common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls.known_queues import KnownQueues
from tandemlog_server.storage.metadata.topics import TopicConfig


def test_a_topic_of_batch_queues_is_refused_in_one_sentence() -> None:
    bench = Bench()
    known = KnownQueues(bench.store.topics, bench.store.queue_table)
    known.check_queue("T", 0)
    attributes = {"queue.type": "BatchCQ"}
    bench.store.topics.create(TopicConfig("T", 4, 4, attributes=attributes), 1, update=True)
    with pytest.raises(RequestRefusedError, match="which only RocketMQ serves") as refused:
        known.check_queue("T", 0)
    assert refused.value.code == common_pb2.INVALID_ARGUMENT
