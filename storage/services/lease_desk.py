"""What the engine of leases asks of the store: messages to lease, records to write.

    engine   reading ──▶ read ──▶ ReadBatch        consume queues and log, what is dispatched
             to_read ──▶ found                     which message lies there now
             news    ──▶ put_progress              rmq_sys_tandemlog
                         put_state                 everything, when the log has grown by a file

Reads end where dispatch ends, which is never behind what is confirmed: a message is delivered only
when no failover can take it away. The fold of progress records (folds/lease_fold.py) follows the
log by itself; a term begins when it has applied everything that stood in the log at the begin.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tandemlog.format.constants import SERVICE_TOPIC
from tandemlog.format.filter.expression import Condition
from tandemlog.format.lease.policy import Ordering
from tandemlog.format.lease.progress import (
    Progress,
    ProgressKind,
    QueueProgress,
    encode_progress,
    split,
)
from tandemlog.format.record.record import encode_record

from ..errors import UnreadableError
from ..folds.lease_fold import PIECE_WEIGHT
from ..leases.handle_operations import Found, ToRead
from ..leases.intervals import runs_of
from ..leases.lease_values import Reading
from ..leases.read_batch import ReadBatch, joined, read_batch
from ..message_store import MessageStore
from ..reads.results import GetResult
from .damaged_numbers import DamagedNumbers
from .own_batch import no_host, own_batch

logger = logging.getLogger(__name__)

FOUND_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Selector:
    """Which messages a consumer wants; what it leaves out is done for its group. `condition` says
    it exactly, `tag_hashes` spares reading what has another tag."""

    condition: Condition
    tag_hashes: Collection[int] = ()


class LeaseDesk:
    """See the module. `begin` and `end` belong to one thread, the others to any."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._fold = store.leases
        self._damaged = DamagedNumbers(store)
        self._began_at: int | None = None
        self._state_end = -1
        self._written = 0

    # ---- terms

    def begin(self) -> None:
        """This node is the master from now on, and appends."""
        self._began_at = self._written = self._store.log.wrote.value
        self._state_end = -1

    def end(self) -> None:
        self._began_at = None

    @property
    def ready(self) -> bool:
        """Whether this node knows what the masters before it were told."""
        return self._began_at is not None and self._fold.next_offset >= self._began_at

    @property
    def written(self) -> int:
        """Up to where this term has written."""
        return self._written

    def has_applied(self, log_offset: int) -> bool:
        """Whether the fold knows everything that was written up to there."""
        return self._fold.next_offset >= log_offset

    # ---- what the engine begins with

    def ranges(self, topic: str) -> list[tuple[int, int]]:
        """See `range`; of each queue of the topic."""
        config = self._store.topics.get(topic)
        count = max(config.read_queues, config.write_queues) if config is not None else 0
        known = self._store.queue_table.queues_of(topic)
        return [self.range(topic, each) for each in range(max([count - 1, *known]) + 1)]

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Minimum and end of the queue. Numbers below the first message there is are not gone where
        they wait for their records."""
        dense = self._store.queue_table.get(topic, queue_id)
        if dense < 0:
            return 0, 0
        queues = self._store.queues
        minimum, end = queues.min_offset(dense), queues.max_offset(dense)
        return self._damaged.least(topic, queue_id, minimum), end

    def said(self, group: str) -> Mapping[str, dict[int, QueueProgress]]:
        """What the log says about the group, by topic and queue."""
        topics: dict[str, dict[int, QueueProgress]] = {}
        for each in self._fold.of_group(group):
            topics.setdefault(each.topic, {})[each.queue_id] = each
        return topics

    def groups(self) -> list[str]:
        """The groups that the log tells of."""
        return self._fold.groups()

    def dropped(self, group: str) -> list[QueueProgress]:
        """Entries that drop what the log says about a group."""
        return [_drop(each) for each in self._fold.of_group(group)]

    @property
    def queue_count(self) -> int:
        """How many queues of groups the log tells of."""
        return self._fold.queue_count

    # ---- messages

    def read(
        self, reading: Reading, max_bytes: int, selector: Selector | None = None
    ) -> ReadBatch | None:
        """The messages of a reading, or its first ones; None if nothing can be said yet. Raises
        StoreBusyError, and UnreadableError if the disk cannot read the first one."""
        queue = reading.queue
        keyed = queue.policy.ordering is Ordering.KEY
        if not len(reading.again):
            return self._read_first(
                queue.topic, queue.queue_id, reading.start, reading.end, max_bytes, selector, keyed
            )
        batches: list[ReadBatch] = []
        starts, ends = runs_of(reading.again)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while start < end and max_bytes > 0:
                try:
                    batch = self._read_first(
                        queue.topic, queue.queue_id, start, end, max_bytes, selector, keyed
                    )
                except UnreadableError:
                    if not batches:
                        raise
                    batch = None
                if batch is None:
                    return joined(batches) if batches else None
                batches.append(batch)
                max_bytes -= int(batch.sizes.sum())
                start = batch.end
            if start < end:
                break
        return joined(batches)

    def _read_first(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        max_bytes: int,
        selector: Selector | None,
        keyed: bool,
    ) -> ReadBatch | None:
        """As `_read_run`; raises UnreadableError only for the message at `start` itself, and not
        for one that a filter selects later."""
        try:
            return self._read_run(topic, queue_id, start, end, max_bytes, selector, keyed)
        except UnreadableError:
            if end - start <= 1:
                raise
        return self._read_run(topic, queue_id, start, start + 1, max_bytes, selector, keyed)

    def _read_run(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        max_bytes: int,
        selector: Selector | None,
        keyed: bool,
    ) -> ReadBatch | None:
        result = self._get(topic, queue_id, start, end - start, max_bytes, selector)
        if result.next_offset <= start:
            return None
        batch = read_batch(
            start, result.next_offset, result.records, result.sizes.astype(np.int64), keyed=keyed
        )
        if len(batch.offsets) < batch.end - start:
            # what waits for its record comes first: it is neither left out nor deleted
            waiting = self._damaged.first(topic, queue_id, start, min(batch.end, end))
            if waiting is not None:
                end, fault = waiting
                if end == start:
                    raise fault
        # a filter may have looked further than was asked for
        return batch if batch.end <= end else batch.before(end)

    def _get(
        self,
        topic: str,
        queue_id: int,
        start: int,
        count: int,
        max_bytes: int,
        selector: Selector | None,
    ) -> GetResult:
        reader = self._store.reader
        if selector is None:
            return reader.get(topic, queue_id, start, count, max_bytes)
        return reader.get(
            topic, queue_id, start, count, max_bytes, selector.tag_hashes, selector.condition
        )

    def found(self, to_read: ToRead) -> Found:
        """The messages that lie at the places of these handles, as far as the disk can read them.
        Raises StoreBusyError."""
        offsets = to_read.handles["queue_offset"].astype(np.int64)
        wanted = np.unique(offsets)
        queue = to_read.queue
        log_offsets = np.full(len(wanted), -1, np.int64)
        prints, keys = np.zeros(len(wanted), np.uint32), np.zeros(len(wanted), np.uint32)
        starts, ends = runs_of(wanted)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while start < end:
                try:
                    batch = self._read_first(
                        queue.topic, queue.queue_id, start, end, FOUND_BYTES, None, keyed=True
                    )
                except UnreadableError:
                    start += 1
                    continue
                if batch is None:
                    break
                at = wanted.searchsorted(batch.offsets)
                log_offsets[at] = batch.log_offsets
                prints[at], keys[at] = batch.fingerprints, batch.keys
                start = batch.end
        mine = wanted.searchsorted(offsets)
        return Found(log_offsets[mine], prints[mine], keys[mine])

    # ---- records

    def put_progress(self, entries: Sequence[QueueProgress]) -> int:
        """Write what is new; returns the log offset up to which it must be confirmed. Raises what
        `put_own` does."""
        return self._put(encode_progress(Progress(entries)))

    def state_is_due(self) -> bool:
        """Whether retention would otherwise have to keep the log of long ago: the log has grown by
        a file since the last STATE, or since the first progress record."""
        log, fold = self._store.log, self._fold
        if fold.first_offset < 0 or fold.next_offset < self._written:
            return False
        last = max(self._state_end, fold.base_offset, fold.first_offset)
        return log.wrote.value - last >= log.file_size

    def put_state(self, now_ms: int) -> int:
        """Write everything that the log says, in pieces; returns as `put_progress`. Nothing else
        of leases may be written meanwhile, and everything that was is applied (`state_is_due`)."""
        entries, _ = self._fold.everything()
        parts = split(entries, PIECE_WEIGHT) or [[]]
        for number, part in enumerate(parts):
            state = Progress(part, ProgressKind.STATE, now_ms, number, len(parts))
            self._state_end = self._put(encode_progress(state))
        logger.info("state of groups written: queues=%d records=%d", len(entries), len(parts))
        return self._state_end

    def forgotten(self) -> list[QueueProgress]:
        """Entries that drop what the log says about topics that were deleted."""
        topics = self._store.topics.table
        return [_drop(each) for each in self._fold.everything()[0] if each.topic not in topics]

    def _put(self, body: bytes) -> int:
        host = no_host(self._store.config.store_host)
        now_ms = self._store.clock.now_ms()
        record = encode_record(
            topic=SERVICE_TOPIC, body=body, born_timestamp=now_ms, born_host=host, store_host=host
        )
        result = self._store.put_own(lambda: own_batch(SERVICE_TOPIC, [record]))
        if result is None:
            raise AssertionError("a record was framed and not put")
        self._written = result.end_offset
        return result.end_offset


def _drop(entry: QueueProgress) -> QueueProgress:
    return QueueProgress(
        entry.group, entry.topic, entry.queue_id, generation=entry.generation, dropped=True
    )
