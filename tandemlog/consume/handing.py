"""How far a caller has come in what a follower gave.

    batch   m m m m m m m m        delivered   handed to the caller
            . . . ^                done        the caller came back for more
                  a loop ended here: the rest waits for the next loop, or the next call

A loop over messages may be left in the middle of a batch and another one begun: messages that the
first one did not reach must not be skipped, since the offsets behind it will be committed.
"""

from .follower import Follower
from .received import ReceivedBatch


class Handing:
    """See the module; for one caller at a time."""

    __slots__ = ("_batch", "_follower", "_index", "_next_offset")

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._batch: ReceivedBatch | None = None
        self._index = 0
        self._next_offset: int | None = None

    def begin(self, batch: ReceivedBatch) -> None:
        """Deliver the messages of `batch` one by one."""
        self._batch = batch
        self._index = 0

    def message(self, queue_offset: int) -> None:
        """The next one of them."""
        self._index += 1
        self._out(queue_offset + 1)

    def whole(self, batch: ReceivedBatch) -> None:
        """All messages of `batch` at once."""
        self._batch = batch
        self._index = len(batch)
        self._out(batch.next_offset)

    def _out(self, next_offset: int) -> None:
        assert self._batch is not None
        self._next_offset = next_offset
        self._follower.handed_out((self._batch.topic, self._batch.queue_id), next_offset)

    def came_back(self) -> None:
        """The caller wants more: what it got is done."""
        if self._batch is not None and self._next_offset is not None:
            queue = (self._batch.topic, self._batch.queue_id)
            self._follower.handled(queue, self._next_offset)
            self._next_offset = None

    def rest(self) -> ReceivedBatch | None:
        """What is left to deliver of the last batch; if nothing is, its end counts as done."""
        batch, self._batch = self._batch, None
        if batch is None:
            return None
        if self._index < len(batch):
            return batch.behind(self._index) if self._index else batch
        self._follower.skipped(batch)
        return None
