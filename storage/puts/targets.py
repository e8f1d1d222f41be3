"""Which queues a client may put to: the table of topics, turned into one value per queue.

    batch's own table   (topic, queue id) ...  --dense-->  allowed[dense]
                                                           one gather, no loop over queues

`allowed` is rebuilt when the table of topics changes. A queue that a put names for the first
time is registered then; one that only exists in the log (its topic was deleted) stays readable and
takes nothing.
"""

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import all_true, first_true
from tandemlog.format.constants import client_topic_fault, is_closed_topic
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.words import counted

from ..errors import BatchRefusedError
from ..metadata.topics import TopicTable
from ..queues.queue_table import QueueTable


class PutTargets:
    """Belongs to the one who appends; a change of topics may come from any thread."""

    def __init__(
        self,
        topics: TopicTable,
        table: QueueTable,
        max_queues: int = 1 << 22,
        waiting_queues: Mapping[str, int] | None = None,
    ) -> None:
        """`waiting_queues`: how many queues each topic has in which messages wait that come later;
        these topics are in no table."""
        self._max_queues = max_queues
        self._waiting_queues = waiting_queues or {}
        self._topics = topics
        self._table = table
        self._allowed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._stale = threading.Event()
        topics.listen(self._stale.set)

    def resolve(self, batch: RecordBatch) -> NDArray[np.int64]:
        """i8[q]: the dense index of each entry of the batch's table.

        Raises BatchRefusedError (UNKNOWN_TOPIC, UNKNOWN_QUEUE, INVALID_TOPIC_NAME,
        INVALID_ARGUMENT) for the first one that may not be put to, or is there twice.
        """
        if self._stale.is_set():
            self._stale.clear()
            self._allowed = self._allowed[:0]
        dense = self._table.dense(batch.topics, batch.queue_topics, batch.queue_ids)
        if len(self._allowed) == self._table.count and int(np.minimum.reduce(dense)) >= 0:
            if all_true(self._allowed[dense]):
                _require_each_once(batch, dense)
                return dense
        else:
            dense = self._register(batch, dense)
            self._refresh()
        refused = np.flatnonzero(~self._allowed[dense])
        if len(refused):
            raise self._refusal(batch, int(refused[0]))
        _require_each_once(batch, dense)
        return dense

    def register_own(self, batch: RecordBatch) -> NDArray[np.int64]:
        """i8[q], as `resolve`, for a service of this node: its topics need not be in the table.
        Raises BatchRefusedError for a queue that is there twice."""
        dense = self._table.dense(batch.topics, batch.queue_topics, batch.queue_ids)
        for entry in np.flatnonzero(dense < 0).tolist():
            topic = batch.topics[int(batch.queue_topics[entry])]
            dense[entry] = self._table.register(topic, int(batch.queue_ids[entry]))
        _require_each_once(batch, dense)
        return dense

    def _register(self, batch: RecordBatch, dense: NDArray[np.int64]) -> NDArray[np.int64]:
        """Register the queues of the table of topics that have had no put yet."""
        for entry in np.flatnonzero(dense < 0).tolist():
            topic = batch.topics[int(batch.queue_topics[entry])]
            queue_id = int(batch.queue_ids[entry])
            if not self._may_put(topic, queue_id):
                raise self._refusal(batch, entry)
            if self._table.count >= self._max_queues and self._table.get(topic, queue_id) < 0:
                raise BatchRefusedError(
                    "INVALID_ARGUMENT",
                    "queue_id",
                    f"queue {queue_id} of topic {topic!r} would be one more than max_queues, "
                    f"{self._max_queues}: raise it, or restart the node once the messages of "
                    "deleted topics have expired",
                    limit=self._max_queues,
                    actual=self._table.count + 1,
                    record_index=int(np.argmax(batch.queue_indexes == entry)),
                    of_the_store=True,
                )
            dense[entry] = self._table.register(topic, queue_id)
        return dense

    def _refresh(self) -> None:
        """Extend `_allowed` to the queues that it lacks: the new ones, or all after a change."""
        done, count = len(self._allowed), self._table.count
        more = (self._may_put(*self._table.name(dense)) for dense in range(done, count))
        self._allowed = np.append(
            self._allowed, np.fromiter(more, dtype=np.bool_, count=count - done)
        )

    def _may_put(self, topic: str, queue_id: int) -> bool:
        if (waiting := self._waiting_queues.get(topic)) is not None:
            return 0 <= queue_id < waiting
        config = self._topics.table.get(topic)
        return (
            config is not None
            and config.writable
            and not config.in_batch_queues
            and 0 <= queue_id < config.write_queues
            and not is_closed_topic(topic)
        )

    def message_refusal(self, topic: str, queue_id: int) -> BatchRefusedError | None:
        """Why no message may go to this queue, None if it may: not of a topic in which messages
        wait."""
        if topic not in self._waiting_queues and self._may_put(topic, queue_id):
            return None
        return self._refusal_of(topic, queue_id, -1)

    def _refusal(self, batch: RecordBatch, entry: int) -> BatchRefusedError:
        topic = batch.topics[int(batch.queue_topics[entry])]
        queue_id = int(batch.queue_ids[entry])
        record = int(np.argmax(batch.queue_indexes == entry))
        if (waiting := self._waiting_queues.get(topic)) is not None:
            return _unknown_queue(topic, waiting, queue_id, record)
        return self._refusal_of(topic, queue_id, record)

    def _refusal_of(self, topic: str, queue_id: int, record: int) -> BatchRefusedError:
        fault = client_topic_fault(topic, new=False)
        if fault is not None:
            return BatchRefusedError(
                "INVALID_TOPIC_NAME", "topic", f"topic {topic!r}: {fault}", record_index=record
            )
        config = self._topics.table.get(topic)
        if config is None:
            return BatchRefusedError(
                "UNKNOWN_TOPIC",
                "topic",
                f"there is no topic {topic!r}: create it first",
                record_index=record,
            )
        if not config.writable:
            return BatchRefusedError(
                "INVALID_ARGUMENT",
                "topic",
                f"topic {topic!r} is not writable (perm {config.perm})",
                record_index=record,
                of_the_store=True,
            )
        if config.in_batch_queues:
            return BatchRefusedError(
                "INVALID_ARGUMENT",
                "topic",
                f"topic {topic!r} has batch queues (queue.type BatchCQ), which only RocketMQ "
                "supports",
                record_index=record,
                of_the_store=True,
            )
        return _unknown_queue(topic, config.write_queues, queue_id, record)


def _unknown_queue(topic: str, queues: int, queue_id: int, record: int) -> BatchRefusedError:
    return BatchRefusedError(
        "UNKNOWN_QUEUE",
        "queue_id",
        f"topic {topic!r} has {counted(queues, 'queue')}, there is no queue {queue_id}",
        limit=queues,
        actual=queue_id,
        record_index=record,
    )


def _require_each_once(batch: RecordBatch, dense: NDArray[np.int64]) -> None:
    """Raises BatchRefusedError if a queue is in the batch's table twice: its records would get the
    same offsets twice."""
    if len(dense) == 1:
        return
    ordered = dense.copy()
    ordered.sort()
    twice = first_true(ordered[1:] == ordered[:-1])
    if twice >= 0:
        entry = int(np.flatnonzero(dense == ordered[twice])[1])
        topic, queue_id = batch.topics[int(batch.queue_topics[entry])], batch.queue_ids[entry]
        raise BatchRefusedError(
            "INVALID_ARGUMENT", "queue_ids", f"queue {queue_id} of {topic} is in the table twice"
        )
