"""All queues of the store as a dense numbering, and the next queue offset of each.

    topic  -> its run in one flat array, indexed by queue id
    flat   [ 0  1  2  3 | 4 -1 | 5 6 ...]     run of topic A: 4 slots, of topic B: 2, ...
               dense index, -1 if there is no such queue
    next_queue_offsets[dense]   what the next record of that queue gets

So a batch of any number of queues is looked up with two gathers and no loop over queues. Dense
indexes are never reused: those of a deleted topic stay empty.

A run has at most SLOTS_PER_QUEUE slots for each queue that there is, so that one put to queue
65,535 costs no table of half a megabyte. Queues whose id lies beyond their topic's run are kept in
a dictionary until the run has grown to them.

MAX_QUEUES is the capacity of the arrays, many times more than a master allows (max_queues): a slave
and recovery take what the log holds.

Who writes what: `register` and `unregister` take the lock. `next_queue_offsets` never moves; its
entries belong to the appender on a master, and to reput on a slave. Lookups take no lock: arrays
are filled before they are published.
"""

import threading
from collections.abc import Sequence
from operator import itemgetter
from struct import pack

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.grouping import distinct_pairs
from tandemlog.format.arrays.ragged import all_true
from tandemlog.format.columns.dispatch import UnitColumns

from ..errors import CorruptStoreError

MAX_QUEUES = 1 << 24
MAX_QUEUE_ID = (1 << 20) - 1
FEW_QUEUES = 8
LEAST_SLOTS = 64
SLOTS_PER_QUEUE = 16


class _Numbers(dict[str, int]):
    """Of topics; -1 for one that has none."""

    def __missing__(self, topic: str) -> int:
        return -1


class QueueTable:
    """See the module. Raises ValueError for ids and counts beyond MAX_QUEUE_ID and MAX_QUEUES."""

    def __init__(self) -> None:
        # calloc gives untouched pages that take no memory, so the array need never be moved
        self.next_queue_offsets: NDArray[np.int64] = np.zeros(MAX_QUEUES, dtype=np.int64)
        self._names: list[tuple[str, int]] = []
        self._topic_numbers = _Numbers()
        self._starts = np.zeros(16, dtype=np.int64)
        self._lengths = np.zeros(16, dtype=np.int64)
        self._flat = np.full(64, -1, dtype=np.int64)
        self._flat_used = 0
        # topic's number -> queue id -> dense index of what its run does not reach
        self._far: dict[int, dict[int, int]] = {}
        self._counts: list[int] = []
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many dense indexes were given out."""
        return len(self._names)

    def name(self, dense: int) -> tuple[str, int]:
        """The topic and queue id of a dense index."""
        return self._names[dense]

    def names(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every dense index, those of deleted topics included."""
        return self._names[:]

    def get(self, topic: str, queue_id: int) -> int:
        """The dense index, or -1."""
        number = self._topic_numbers.get(topic)
        if number is None:
            return -1
        if not 0 <= queue_id < self._lengths[number]:
            far = self._far.get(number)
            if far is None or (dense := far.get(queue_id)) is None:
                # it may have come into the run meanwhile
                return self._in_run(number, queue_id)
            return dense
        return self._in_run(number, queue_id)

    def _in_run(self, number: int, queue_id: int) -> int:
        if not 0 <= queue_id < self._lengths[number]:
            return -1
        slot = self._starts[number] + queue_id  # before _flat: a start may need the newest one
        return int(self._flat[slot])

    def queues_of(self, topic: str) -> dict[int, int]:
        """Queue id -> dense index of a topic's queues."""
        number = self._topic_numbers.get(topic)
        if number is None:
            return {}
        start, length = int(self._starts[number]), int(self._lengths[number])
        run = self._flat[start : start + length]
        near = {int(each): int(run[each]) for each in np.flatnonzero(run >= 0)}
        return {**self._far.get(number, {}), **near}

    def dense(
        self,
        topics: Sequence[str],
        queue_topics: NDArray[np.integer],
        queue_ids: NDArray[np.integer],
    ) -> NDArray[np.int64]:
        """i8[q]: the dense index of each (topics[queue_topics[q]], queue_ids[q]), -1 unknown.

        Raises IndexError if queue_topics points outside `topics`.
        """
        if len(queue_ids) <= FEW_QUEUES:
            few = zip(queue_topics.tolist(), queue_ids.tolist(), strict=True)
            return np.array(
                [self.get(topics[topic], queue_id) for topic, queue_id in few], np.int64
            )
        # of one name alone it would be no tuple
        looked_up = itemgetter("", "", *topics)(self._topic_numbers)
        numbers = np.frombuffer(pack(f"{len(looked_up)}q", *looked_up), np.int64)[2:]
        # An unknown topic's number is that of the last run, which is empty.
        lengths, starts = self._lengths[numbers][queue_topics], self._starts[numbers][queue_topics]
        ids = queue_ids.astype(np.int64)
        # As an unsigned number one below 0 is too large.
        near = ids.view(np.uint64) < lengths.view(np.uint64)
        starts += ids
        if all_true(near):
            every: NDArray[np.int64] = self._flat[starts]
            return every
        starts[~near] = 0
        rows: NDArray[np.int64] = np.where(near, self._flat[starts], -1)
        if self._far:
            for row in np.flatnonzero(~near).tolist():
                rows[row] = self.get(topics[int(queue_topics[row])], int(queue_ids[row]))
        return rows

    def register(self, topic: str, queue_id: int, next_queue_offset: int | None = None) -> int:
        """The dense index of the queue, a new one where it has none yet.

        `next_queue_offset` None keeps the value (0 for a new queue).
        """
        if not 0 <= queue_id <= MAX_QUEUE_ID:
            raise ValueError(f"queue id {queue_id} of {topic} is not in 0..{MAX_QUEUE_ID}")
        with self._lock:
            dense = self.get(topic, queue_id)
            if dense < 0:
                dense = self._add(topic, queue_id)
            if next_queue_offset is not None:
                self.next_queue_offsets[dense] = next_queue_offset
            return dense

    def unregister(self, topic: str) -> list[int]:
        """Forget a topic's queues; returns the dense indexes that they had."""
        with self._lock:
            queues = list(self.queues_of(topic).values())
            number = self._topic_numbers.get(topic)
            if number is not None:
                start, length = int(self._starts[number]), int(self._lengths[number])
                self._flat[start : start + length] = -1
                self._far.pop(number, None)
                self._counts[number] = 0
            return queues

    def clear_offsets(self) -> None:
        """Every queue starts at 0 again: for a log that starts over."""
        self.next_queue_offsets[: self.count] = 0

    def _add(self, topic: str, queue_id: int) -> int:
        dense = len(self._names)
        if dense >= MAX_QUEUES:
            raise ValueError(f"the store has {MAX_QUEUES} queues, the most that it can hold")
        number = self._topic_numbers.get(topic)
        if number is None:
            number = self._extend_topic(topic, None, 1)
        self._names.append((topic, queue_id))
        self._counts[number] += 1
        room = max(LEAST_SLOTS, SLOTS_PER_QUEUE * self._counts[number])
        if queue_id >= self._lengths[number] and queue_id < room:
            self._extend_topic(topic, number, queue_id + 1)
            self._bring_near(number)
        if queue_id < self._lengths[number]:
            self._flat[self._starts[number] + queue_id] = dense
        else:
            self._far.setdefault(number, {})[queue_id] = dense
        return dense

    def _bring_near(self, number: int) -> None:
        """Remove from the dictionary what the run holds now."""
        far, length = self._far.get(number, {}), int(self._lengths[number])
        beyond = {queue_id: dense for queue_id, dense in far.items() if queue_id >= length}
        if beyond:
            self._far[number] = beyond
        else:
            self._far.pop(number, None)

    def _extend_topic(self, topic: str, number: int | None, queues: int) -> int:
        """A run of at least `queues` slots at the end of the flat array, the old one copied."""
        length = 1 << (queues - 1).bit_length()
        start = self._flat_used
        if start + length > len(self._flat):
            grown = np.full(max(2 * len(self._flat), start + length), -1, dtype=np.int64)
            grown[:start] = self._flat[:start]
            self._flat = grown
        self._flat_used = start + length
        if number is None:
            number = len(self._topic_numbers)
            self._counts.append(0)
            if number + 1 >= len(self._starts):
                self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
                self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
            self._starts[number], self._lengths[number] = start, length
            self._topic_numbers[topic] = number
            return number
        old_start, old_length = int(self._starts[number]), int(self._lengths[number])
        self._flat[start : start + old_length] = self._flat[old_start : old_start + old_length]
        for queue_id, dense in self._far.get(number, {}).items():
            if queue_id < length:
                self._flat[start + queue_id] = dense
        # start first: a reader between the two lines sees the old length of the new run
        self._starts[number] = start
        self._lengths[number] = length
        return number


def register_queue(table: QueueTable, topic: str, queue_id: int) -> int:
    """The dense index of the queue, a new one where it has none; -1 for one that cannot be."""
    try:
        return table.register(topic, queue_id)
    except ValueError:
        return -1


def register_queues(table: QueueTable, units: UnitColumns) -> NDArray[np.int64]:
    """i8[d]: the queue of each unit, new ones where they have none. Raises CorruptStoreError for a
    queue that cannot be."""
    dense = table.dense(units.topics, units.topic_index, units.queue_id)
    unknown = (dense < 0).nonzero()[0]
    if not len(unknown):
        return dense
    queue_ids = units.queue_id[unknown].astype(np.int64)
    firsts, _ = distinct_pairs(units.topic_index[unknown], queue_ids)
    for row in unknown[firsts].tolist():
        topic, queue_id = units.topics[units.topic_index[row]], int(units.queue_id[row])
        try:
            table.register(topic, queue_id)
        except ValueError as error:
            offset = int(units.units["physical_offset"][row])
            raise CorruptStoreError("commitlog", offset, f"record there: {error}") from error
    return table.dense(units.topics, units.topic_index, units.queue_id)
