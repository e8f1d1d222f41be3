"""Records of the store's own services as a batch of one queue."""

from collections.abc import Sequence

import numpy as np

from tandemlog.format.record.batch import RecordBatch


def own_batch(topic: str, records: Sequence[bytes], queue_id: int = 0) -> RecordBatch:
    """The records, framed for this queue, for MessageStore.put_own."""
    return RecordBatch(
        b"".join(records),
        np.array([len(each) for each in records], np.uint32),
        np.zeros(len(records), np.uint16),
        (topic,),
        np.zeros(1, np.uint32),
        np.array([queue_id], np.uint32),
    )


def no_host(store_host: str) -> str:
    """The host that a record has room for until the store writes its own there."""
    return "[::]:0" if store_host.startswith("[") else "0.0.0.0:0"
