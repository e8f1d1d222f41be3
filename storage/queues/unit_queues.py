"""The queues of a batch of units, as dense indexes; queues that are new are registered."""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.grouping import distinct_pairs
from tandemlog.format.columns.dispatch import UnitColumns

from ..errors import CorruptStoreError
from .queue_table import QueueTable


def queue_of(table: QueueTable, topic: str, queue_id: int) -> int:
    """The dense index of the queue, a new one where it has none; -1 for one that cannot be."""
    try:
        return table.register(topic, queue_id)
    except ValueError:
        return -1


def queues_of(table: QueueTable, found: UnitColumns) -> NDArray[np.int64]:
    """i8[d]: the queue of each unit. Raises CorruptStoreError for a queue that cannot be."""
    dense = table.dense(found.topics, found.topic_index, found.queue_id)
    unknown = np.flatnonzero(dense < 0)
    if not len(unknown):
        return dense
    queue_ids = found.queue_id[unknown].astype(np.int64)
    firsts, _ = distinct_pairs(found.topic_index[unknown], queue_ids)
    for row in unknown[firsts].tolist():
        topic, queue_id = found.topics[found.topic_index[row]], int(found.queue_id[row])
        try:
            table.register(topic, queue_id)
        except ValueError as error:
            offset = int(found.units["physical_offset"][row])
            raise CorruptStoreError("commitlog", offset, f"record there: {error}") from error
    return table.dense(found.topics, found.topic_index, found.queue_id)
