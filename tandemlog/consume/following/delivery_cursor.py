"""How far a caller has come in what a follower gave.

    batch   m m m m m m m m        delivered   handed to the caller
            . . . ^                done        the caller came back for more
                  a loop ended here: the rest waits for the next loop, or the next call

A loop over messages may be left in the middle of a batch and another one begun: messages that the
first one did not reach must not be skipped, since the offsets behind it will be committed.
"""

from collections.abc import Iterator

from ...forks import watch
from ..progress import QueueProgress
from ..received.received_batch import ReceivedBatch
from ..received.received_message import ReceivedMessage
from .fetcher import FetchedBatch
from .follower import Call, Follower


class DeliveryCursor:
    """See the module; for one caller at a time."""

    __slots__ = (
        "__weakref__",
        "_again",
        "_batch",
        "_counters",
        "_follower",
        "_index",
        "_on_receive",
        "_progress",
        "_queue_progress",
        "_turn",
    )

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._progress = follower.progress
        self._counters = follower.counters
        self._on_receive = follower.on_receive
        self._again = False
        self._batch: ReceivedBatch | None = None
        self._turn = 0
        self._index = 0
        self._queue_progress = QueueProgress(0)
        watch(self)

    def begin(self, fetched: FetchedBatch) -> bool:
        """A batch to deliver; False if it must not be delivered any more, or has nothing to
        deliver."""
        batch, turn = fetched
        again, self._again = self._again, False
        if not len(batch):
            self._follower.skipped(batch, turn)
            return False
        queue = (batch.topic, batch.queue_id)
        if not self._progress.take_in_hand(queue, turn):
            return False
        self._batch, self._turn = batch, turn
        self._queue_progress = self._progress.of_queue(queue, turn)
        self._index = 0
        self._counters.in_hand = self._in_hand
        if self._on_receive is not None and not again:
            self._on_receive(batch)
        return True

    def messages(self) -> Iterator[ReceivedMessage]:
        """Deliver the messages of the batch one by one, unless something else waits for the
        caller: then the rest comes later."""
        batch, follower, progress = self.batch, self._follower, self._queue_progress
        member = follower.membership is not None
        following = batch.following_offsets()
        indexes = range(1, len(batch) + 1)
        for index, message, next_offset in zip(indexes, batch, following, strict=True):
            self._index = index
            progress.delivered = next_offset
            yield message
            if self._batch is not batch:
                return  # another loop, or call, has continued meanwhile
            progress.done = next_offset
            if follower.interrupted or (member and follower.must_stop):
                return

    def _in_hand(self) -> tuple[ReceivedBatch | None, int]:
        """The batch, and how many of its messages the caller has had."""
        return self._batch, self._index

    def some(self, most: int | None = None) -> ReceivedBatch:
        """All messages of the batch at once, or the first `most` of them."""
        batch = self.batch
        if most is None or len(batch) <= most:
            self._index = len(batch)
            self._queue_progress.delivered = batch.next_offset
            return batch
        next_offset = batch[most].queue_offset
        self._index = most
        self._queue_progress.delivered = next_offset
        return batch.before(next_offset)

    @property
    def batch(self) -> ReceivedBatch:
        """The one that was begun."""
        assert self._batch is not None
        return self._batch

    def came_back(self) -> None:
        """The caller wants more: what it got is done."""
        self._queue_progress.done = self._queue_progress.delivered

    def empty(self) -> None:
        """The caller has nothing in hand."""
        self.came_back()
        self._progress.in_hand = None

    def one(self) -> ReceivedMessage | None:
        """The next message of the batch; None if there is none left to deliver."""
        batch = self._batch
        if batch is None or self._index >= len(batch) or self._follower.must_stop:
            return None
        message = batch[self._index]
        self._index += 1
        self._queue_progress.delivered = message.queue_offset + 1
        return message

    def calls(self) -> Iterator[Call]:
        """With nothing in hand, the callbacks that wait for the caller."""
        self._follower.interrupted = False
        calls = self._follower.calls
        while calls:
            call = calls.popleft()
            if not call.overtaken:
                yield call

    def rest(self) -> FetchedBatch | None:
        """With nothing in hand, what is left to deliver of the last batch; if nothing is, its end
        counts as done."""
        batch, self._batch = self._batch, None
        if batch is None:
            return None
        self._counters.handed_out(batch, self._index)
        if self._index < len(batch):
            self._again = True
            return (batch.behind(self._index) if self._index else batch), self._turn
        self._follower.skipped(batch, self._turn)
        return None
