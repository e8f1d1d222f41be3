"""What a scrape tells of topics and groups, bounded: traffic by topic, lag by group and topic.

    queues' columns ──bincount by topic──▶ first `metric_topics` topics | other
    committed offsets ──▶ per (group, topic): messages behind, age of the oldest of them
    times of delayed messages ──▶ how many come within a minute, an hour, a day, later

The lag in seconds needs the store time of one record of each queue that is behind. It is read once
for each committed offset and kept while that offset does not change, so a stuck group costs one
read, and a busy one a read a scrape. A scrape reads for READ_S at most: queues that it does not
reach keep the age that they had, or have none yet, and the next scrape begins with them.

All of this runs in a thread: it takes some time with thousands of topics, and it reads the disk.
One scrape at a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ..pulls.group_activity import OTHER
from ..pulls.group_places import group_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

READ_S = 0.5
DUE_WITHIN_MS: Final = {"now": 0, "1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}
"""Labels of delayed messages, and how long from now they come at the latest."""
DUE_LATER: Final = "later"


@dataclass(slots=True)
class TopicNumbers:
    """Of one topic, since the store was opened."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0

    def add(self, other: "TopicNumbers") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.messages_out += other.messages_out
        self.bytes_out += other.bytes_out


@dataclass(slots=True)
class Lag:
    """Of a group on a topic. `seconds` is 0 without lag."""

    messages: int = 0
    seconds: float = 0.0

    def add(self, other: "Lag") -> None:
        self.messages += other.messages
        self.seconds = max(self.seconds, other.seconds)


@dataclass(frozen=True, slots=True)
class WorkloadNumbers:
    """By topic, by (group, topic), and delayed messages by when they come; `folded_*` is how many
    are summed under OTHER."""

    topics: Mapping[str, TopicNumbers] = field(default_factory=dict)
    lags: Mapping[tuple[str, str], Lag] = field(default_factory=dict)
    folded_topics: int = 0
    folded_lags: int = 0
    delayed: Mapping[str, int] = field(default_factory=dict)


class Workload:
    """See the module. `leads` says whether this node is the master; `monotonic` is in seconds."""

    def __init__(
        self,
        store: MessageStore,
        *,
        max_topics: int,
        max_groups: int,
        leads: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._max_topics = max_topics
        self._leads = leads
        self._lags = LagReader(store, max_groups, monotonic)
        # by dense index, whose meaning never changes: the topic's number; and the topics by number
        self._topic_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._topics: dict[str, int] = {}

    def numbers(self) -> WorkloadNumbers:
        topics, folded_topics = self._traffic()
        lags, folded_lags = self._lags.read() if self._leads() else ({}, 0)
        return WorkloadNumbers(topics, lags, folded_topics, folded_lags, self._delayed())

    def traffic(self) -> Mapping[str, TopicNumbers]:
        """By topic, since the store was opened."""
        return self._traffic()[0]

    def _delayed(self) -> dict[str, int]:
        now_ms, delays = self._store.clock.now_ms(), self._store.delays
        ends = [now_ms + within for within in DUE_WITHIN_MS.values()]
        with delays.lock:
            counts = delays.rows.counts_by_due(ends)
        return dict(zip((*DUE_WITHIN_MS, DUE_LATER), counts, strict=True))

    def _traffic(self) -> tuple[dict[str, TopicNumbers], int]:
        self._learn_queues()
        traffic, queues = self._store.stats.traffic, len(self._topic_of)
        sums = [
            np.bincount(self._topic_of, column, minlength=len(self._topics)).tolist()
            for columns in (traffic.put, traffic.read)
            for column in columns.copies(queues)
        ]
        numbers: dict[str, TopicNumbers] = {}
        own = folded = 0
        for topic, number in self._topics.items():
            if not self._store.queue_table.queues_of(topic):
                continue  # it was deleted
            label = topic
            if own >= self._max_topics and topic != OTHER:
                label, folded = OTHER, folded + 1
            else:
                own += topic != OTHER
            values = TopicNumbers(*(int(column[number]) for column in sums))
            numbers.setdefault(label, TopicNumbers()).add(values)
        return numbers, folded

    def _learn_queues(self) -> None:
        table, learned = self._store.queue_table, len(self._topic_of)
        count = table.count
        if count > learned:
            more = [self._number_of(table.name(dense)[0]) for dense in range(learned, count)]
            self._topic_of = np.concatenate([self._topic_of, np.array(more, dtype=np.int64)])

    def _number_of(self, topic: str) -> int:
        return self._topics.setdefault(topic, len(self._topics))


class LagReader:
    """The lags of all groups; see the module."""

    def __init__(
        self, store: MessageStore, max_groups: int, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._max_groups = max_groups
        self._monotonic = monotonic
        # (group, topic, queue id) -> queue offset, store time in ms of the record there
        self._times: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._begin = 0

    def read(self) -> tuple[dict[tuple[str, str], Lag], int]:
        """By (group, topic), and how many pairs are summed under OTHER."""
        pairs = sorted((group, topic) for topic, group in self._store.consumer_offsets.pairs())
        now_ms = self._store.clock.now_ms()
        deadline = self._monotonic() + READ_S
        lags: dict[tuple[str, str], Lag] = {}
        times: dict[tuple[str, str, int], tuple[int, int]] = {}
        first = self._begin if self._begin < len(pairs) else 0
        self._begin = 0
        for number in (*range(first, len(pairs)), *range(first)):
            may_read = self._monotonic() < deadline
            if not may_read and not self._begin:
                self._begin = number
            group, topic = pairs[number]
            lag = self._lag(group, topic, now_ms, times, may_read=may_read)
            lags[group, topic] = lag
        self._times = times
        return self._folded(lags)

    def _folded(self, lags: dict[tuple[str, str], Lag]) -> tuple[dict[tuple[str, str], Lag], int]:
        if len(lags) <= self._max_groups:
            return lags, 0
        own = sorted(lags)[: self._max_groups]
        rows = {pair: lags.pop(pair) for pair in own}
        rest = rows.setdefault((OTHER, OTHER), Lag())
        for lag in lags.values():
            rest.add(lag)
        return rows, len(lags)

    def _lag(
        self,
        group: str,
        topic: str,
        now_ms: int,
        times: dict[tuple[str, str, int], tuple[int, int]],
        *,
        may_read: bool,
    ) -> Lag:
        lag = Lag()
        for place in group_places(self._store, group, topic):
            if not place.messages:
                continue
            lag.messages += place.messages
            offset, key = place.next, (group, topic, place.queue_id)
            time_there = self._times.get(key)
            if (time_there is None or time_there[0] != offset) and may_read:
                time_ms = self._store_time(place.dense, offset)
                time_there = (offset, time_ms) if time_ms >= 0 else time_there
            if time_there is not None:
                times[key] = time_there
                lag.seconds = max(lag.seconds, (now_ms - time_there[1]) / 1000)
        return lag

    def _store_time(self, dense: int, queue_offset: int) -> int:
        """In ms; -1 if it cannot be read."""
        try:
            unit = self._store.queues.read(dense, queue_offset, 1)
            if not len(unit):
                return -1
            return self._store.reader.store_timestamp(int(unit["physical_offset"][0]))
        except (StoreError, OSError):
            return -1
