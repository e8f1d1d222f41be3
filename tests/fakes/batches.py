"""Batches as a client frames them: a few records of any queues, and the columns beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.record import encode_record
from tandemlog_server.storage.queues.queue_table import QueueTable


@dataclass(frozen=True)
class Put:
    """One message on its way to a queue."""

    topic: str = "TopicTest"
    queue_id: int = 0
    body: bytes = b"hello"
    properties: bytes = b"TAGS\x01TagA\x02"
    sys_flag: int = 0
    born_host: str = "127.0.0.1:5"
    store_host: str = "127.0.0.1:0"
    version: int | None = None
    property_crc: bool = False

    def record(self) -> bytes:
        return encode_record(
            topic=self.topic,
            queue_id=self.queue_id,
            body=self.body,
            properties=self.properties,
            sys_flag=self.sys_flag,
            born_timestamp=1_700_000_000_000,
            born_host=self.born_host,
            store_host=self.store_host,
            version=self.version,
            property_crc=self.property_crc,
        )


def batch_of(puts: Sequence[Put]) -> RecordBatch:
    """The puts framed, each (topic, queue) once in the table, in order of appearance."""
    records = [put.record() for put in puts]
    table = list(dict.fromkeys((put.topic, put.queue_id) for put in puts))
    topics = tuple(dict.fromkeys(topic for topic, _ in table))
    return RecordBatch(
        records=b"".join(records),
        sizes=np.array([len(record) for record in records], np.uint32),
        queue_indexes=np.array([table.index((put.topic, put.queue_id)) for put in puts], np.uint16),
        topics=topics,
        queue_topics=np.array([topics.index(topic) for topic, _ in table], np.uint32),
        queue_ids=np.array([queue_id for _, queue_id in table], np.uint32),
    )


def registered(table: QueueTable, batch: RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The dense index of each entry of the batch's table; queues that are new are made."""
    for topic, queue_id in zip(batch.queue_topics.tolist(), batch.queue_ids.tolist(), strict=True):
        table.register(batch.topics[topic], queue_id)
    return table.dense(batch.topics, batch.queue_topics, batch.queue_ids)
