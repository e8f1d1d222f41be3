"""How far a caller has come in the batches of a follower.

    batch   m m m m m m m m        delivered   handed to the caller
            . . . ^                done        the caller came back for more
                  a loop ended here: the rest waits for the next loop, or the next call

A loop over messages may be left in the middle of a batch, and another one may continue: messages
that the first one did not reach must not be skipped, since offsets behind them will be committed.
"""

from collections.abc import Iterator

from ...forks import watch
from ..passage import Passage
from ..progress import QueueProgress
from ..received.received_batch import ReceivedBatch
from ..received.received_message import ReceivedMessage
from .fetcher import FetchedBatch
from .follower import Call, Follower


class DeliveryCursor:
    """See the module; for one caller at a time."""

    __slots__ = (
        "__weakref__",
        "_batch",
        "_counters",
        "_follower",
        "_index",
        "_on_receive",
        "_passage",
        "_progress",
        "_queue_progress",
        "_turn",
        "_was_seen",
    )

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._progress = follower.progress
        self._counters = follower.counters
        self._on_receive = follower.on_receive
        self._was_seen = False
        self._batch: ReceivedBatch | None = None
        self._turn = 0
        self._index = 0
        self._passage: Passage | None = None
        self._queue_progress = QueueProgress(0)
        watch(self)

    def start(self, fetched: FetchedBatch) -> bool:
        """Begin to deliver a batch; False if it must not be delivered any more, or is empty."""
        batch, turn = fetched
        was_seen, self._was_seen = self._was_seen, False
        queue = batch.queue
        if not self._progress.start_delivery(queue, turn):
            return False  # nor is an empty one done: messages before it may have been dropped
        if not len(batch):
            self._follower.mark_skipped(batch, turn)
            self._progress.in_hand = None
            return False
        self._batch, self._turn = batch, turn
        self._queue_progress = self._progress.progress_of(queue, turn)
        self._index = 0
        self._counters.in_hand = self._in_hand
        if self._on_receive is not None and not was_seen:
            self._on_receive(batch)
        return True

    def messages(self) -> Iterator[ReceivedMessage]:
        """Deliver the messages of the batch one by one, unless something else waits for the
        caller: then the rest comes later. To be called behind `start`."""
        batch, follower = self.batch, self._follower
        passage = Passage(batch.following_offsets())
        self._queue_progress.count(passage)
        self._passage = follower.passage = passage
        if follower.interrupted:  # before the follower knew what to stop
            passage.stop()
        member = follower.membership
        return passage.of(batch, None if member is None else member.deadline)

    def _end_passage(self) -> None:
        """Another way of delivering continues behind what has passed."""
        passage = self._passage
        if passage is not None:
            passage.stop()
            self._queue_progress.count(None)
            self._index = passage.passed
            self._passage = self._follower.passage = None

    def _in_hand(self) -> tuple[ReceivedBatch | None, int]:
        """The batch, and how many of its messages the caller has had."""
        passage = self._passage
        return self._batch, self._index if passage is None else passage.passed

    def deliver(self, most: int | None = None) -> ReceivedBatch:
        """All messages of the batch at once, or the first `most` of them."""
        self._end_passage()
        batch = self.batch
        if most is None or len(batch) <= most:
            self._index = len(batch)
            self._queue_progress.delivered = batch.next_offset
            return batch
        first = batch.first(most)
        self._index = most
        self._queue_progress.delivered = first.next_offset
        return first

    @property
    def batch(self) -> ReceivedBatch:
        """The batch that is being delivered."""
        assert self._batch is not None
        return self._batch

    def mark_done(self) -> None:
        """The caller wants more: everything that it got is done."""
        self._end_passage()
        self._queue_progress.done = self._queue_progress.delivered

    def release(self) -> None:
        """The caller has nothing in hand."""
        self.mark_done()
        self._progress.in_hand = None

    def deliver_one(self) -> ReceivedMessage | None:
        """The next message of the batch; None at its end."""
        self._end_passage()
        batch = self._batch
        if batch is None or self._index >= len(batch) or self._follower.must_stop:
            return None
        message = batch[self._index]
        self._index += 1
        self._queue_progress.delivered = message.queue_offset + 1
        return message

    def waiting_calls(self) -> Iterator[Call]:
        """With nothing in hand, the callbacks that wait for the caller."""
        self._follower.interrupted = False
        calls = self._follower.calls
        while calls:
            call = calls.popleft()
            if not call.overtaken:
                yield call

    def remaining(self) -> FetchedBatch | None:
        """With nothing in hand, the rest of the last batch; without a rest, its end counts as
        done."""
        self._end_passage()
        batch, self._batch = self._batch, None
        if batch is None:
            return None
        self._counters.handed_out(batch, self._index)
        if self._index < len(batch):
            self._was_seen = True
            return (batch.behind(self._index) if self._index else batch), self._turn
        self._follower.mark_skipped(batch, self._turn)
        return None
