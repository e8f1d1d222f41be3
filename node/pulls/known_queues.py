"""Which topics and queues may be asked for.

A queue is known when it has entries, whatever the table of topics says (a deleted topic, a store
of RocketMQ whose table lacks topics), or when its topic is in the table and has that many queues:
then it is still empty.
"""

from tandemlog.format.words import counted, quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.metadata.topics import TopicTable
from tandemlog_server.storage.queues.queue_table import QueueTable

from ..error_status import RequestRefusedError


def no_topic(name: str) -> str:
    """The sentence for a topic that is not there, with the way out."""
    return (
        f"there is no topic {quoted(name)}: create it with Admin.create_topic, or with `tandemlog "
        "topic create`"
    )


class KnownQueues:
    """See the module."""

    def __init__(self, topics: TopicTable, queues: QueueTable) -> None:
        self._topics = topics
        self._queues = queues

    def check_topic(self, topic: str) -> None:
        """Raises RequestRefusedError (UNKNOWN_TOPIC)."""
        if self._topics.get(topic) is None and not self._queues.queues_of(topic):
            raise RequestRefusedError(
                common_pb2.UNKNOWN_TOPIC,
                no_topic(topic),
                field="topic",
            )

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Raises RequestRefusedError (UNKNOWN_TOPIC, UNKNOWN_QUEUE, INVALID_ARGUMENT)."""
        if topic in self._topics.in_batch_queues:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"topic {quoted(topic)} has batch queues (queue.type BatchCQ), which only RocketMQ "
                "serves: read it from a broker, or its records with dump and export",
                field="topic",
            )
        if self._queues.get(topic, queue_id) >= 0:
            return
        self.check_topic(topic)
        config = self._topics.get(topic)
        count = max(config.read_queues, config.write_queues) if config is not None else 0
        if not 0 <= queue_id < count:
            raise RequestRefusedError(
                common_pb2.UNKNOWN_QUEUE,
                f"topic {quoted(topic)} has {counted(count, 'queue')}, "
                f"there is no queue {queue_id}",
                field="queue_id",
                limit=count,
                actual=queue_id,
            )
