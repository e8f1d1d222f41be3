"""The messages of one request into records, when the request is complete.

    send ─▶ body, own properties, time ─▶ OpenBatch ── sealed ──▶ records by columns

What a sender's thread does for a message is to check it and to keep its parts; unique ids, headers
and CRCs are made for all of them at once. A few messages are framed one by one, which then costs
less; so are those of a batch in which one was framed already, and all without numpy.
"""

from array import array
from typing import TYPE_CHECKING

from ..format.record.message_id import MAX_IDS_AT_ONCE
from ..lazy import FEW, HAVE_NUMPY, lazy
from .framing import Framer
from .put_batch import OpenBatch

if TYPE_CHECKING:
    from . import column_framing
else:
    column_framing = lazy(f"{__package__}.column_framing")


class RowFramer:
    """Frames what was collected as rows of `framer` (see Framer.row); for one thread."""

    def __init__(self, framer: Framer) -> None:
        self._framer = framer

    def records(self, batch: OpenBatch) -> tuple[bytes | memoryview, "array[int]"]:
        """The records end to end, and the bytes of each, u4[n]."""
        count = len(batch.records)
        if HAVE_NUMPY and FEW < count <= MAX_IDS_AT_ONCE and not batch.framed:
            return column_framing.framed_rows(self._framer, batch)
        records = self._one_by_one(batch)
        return b"".join(records), array("I", map(len, records))

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
