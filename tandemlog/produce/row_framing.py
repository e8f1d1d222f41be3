"""The messages of one request into records, when the request is complete.

    send ─▶ body, own properties, time ─▶ OpenBatch ── sealed ──▶ records by columns

What a sender's thread does for a message is to check it and to keep its parts; unique ids, headers
and CRCs are made for all of them at once. A few messages are framed one by one, which then costs
less; so are those of a batch in which one was framed already.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.arrays.byte_column import ByteColumn
from .column_framing import framed_columns
from .framing import Framer
from .put_batch import OpenBatch
from .unique_columns import MAX_AT_ONCE

_FEW: Final = 48
"""Messages up to which one by one is quicker."""


class RowFramer:
    """Frames what was collected as rows of `framer` (see Framer.row); for one thread."""

    def __init__(self, framer: Framer) -> None:
        self._framer = framer

    def records(self, batch: OpenBatch) -> tuple[bytes | memoryview, NDArray[np.uint32]]:
        """The records end to end, and the bytes of each, u4[n]."""
        count = len(batch.records)
        if _FEW < count <= MAX_AT_ONCE and not batch.framed:
            return self._by_columns(batch)
        records = self._one_by_one(batch)
        return b"".join(records), np.fromiter(map(len, records), np.uint32, count)

    def _by_columns(self, batch: OpenBatch) -> tuple[bytes | memoryview, NDArray[np.uint32]]:
        made = framed_columns(
            self._framer,
            bodies=_column(batch.records),
            topics=tuple(batch.topics),
            queue_topics=np.array(batch.queue_topics, np.uint32),
            queue_ids=np.array(batch.queue_ids, np.uint32),
            queue_indexes=np.array(batch.queue_indexes, np.uint16),
            own_properties=_column(batch.own) if any(batch.own) else None,
            born_timestamp=(np.array(batch.born) * 1000).astype(np.int64),
        ).batch
        return memoryview(made.records), made.sizes

    def _one_by_one(self, batch: OpenBatch) -> list[bytes]:
        topics = tuple(batch.topics)
        rows = zip(batch.records, batch.own, batch.queue_indexes, batch.born, strict=True)
        return [
            body
            if own is None
            else self._framer.framed_row(
                topics[batch.queue_topics[entry]],
                body,
                own,
                batch.queue_ids[entry],
                int(born * 1000),
            )
            for body, own, entry, born in rows
        ]


def _column(values: list[bytes]) -> ByteColumn:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return ByteColumn.of_lengths(b"".join(values), lengths)
