"""Dispatch that does not end at damage in what was durable.

A damaged record stops dispatch: a master must not skip anything silently. But below the position
that was durable when the store was opened, or that was dispatched before, the records after the
damage were acknowledged, and withholding all of them because of one would lose more. There dispatch
skips the damage, records it in `passed` and logs it. The queue gets pre-blank units in place of the
damaged records, as soon as a later record or the rest of the damaged one tells their numbers.
"""

import logging
from collections.abc import Callable, Iterable

from tandemlog.format.columns.dispatch import unit_columns
from tandemlog.format.constants import CLUSTER, PRODUCER_MARK
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochTable
from tandemlog.format.files.names import names_a_folder, offset_file_name
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.record.producer_mark import mark_in
from tandemlog.format.record.record import Record, decode_record

from ..errors import CorruptStoreError, StoreError
from ..folds.dispatch_batch import DispatchBatch, LostRecord
from ..log.commit_log import CommitLog
from ..log.log_scanner import MAX_TAIL, Damage
from ..log.record_search import (
    next_record,
    whole_but_for_a_length,
    whole_but_for_body,
    whole_but_for_head,
)
from .dispatch_source import BATCH_BYTES, DispatchSource, LogPort

logger = logging.getLogger(__name__)


class MendingSource(DispatchSource):
    """See the module; damage at or above both `durable` and `dispatched` is not skipped.

    `whole` is a log offset at which a record ends, as at what is dispatched: if no record
    follows the damage, dispatch continues there.
    """

    log: CommitLog

    def __init__(
        self,
        log: CommitLog,
        dispatched: Callable[[], int],
        *,
        delay_levels: DelayLevels,
        index: bool,
        index_tags: bool,
        property_crc: bool = False,
    ) -> None:
        super().__init__(
            log,
            delay_levels=delay_levels,
            index=index,
            index_tags=index_tags,
            starts=log.starts.between,
            property_crc=property_crc,
        )
        self.durable = self.whole = 0
        # where the last damage ends that a master has announced, until more is known to be durable
        self.announced = 0
        self._dispatched = dispatched
        self.passed: dict[int, Damage] = {}

    def batch(
        self,
        start: int,
        limit: int,
        max_bytes: int = BATCH_BYTES,
        *,
        index: bool | None = None,
        index_tags: bool | None = None,
    ) -> DispatchBatch:
        try:
            batch = super().batch(start, limit, max_bytes, index=index, index_tags=index_tags)
        except CorruptStoreError as error:
            following = self._behind(start, error.file, error.reason)
            if following is None:
                raise
        else:
            if batch.end > start or start >= limit or not self._lies_about_size(start, limit):
                return batch
            reason = f"size: no record of that size lies at log offset {start}"
            base = start - start % self.log.file_size
            following = self._behind(start, f"commitlog/{offset_file_name(base)}", reason)
            if following is None:
                return batch
        following = min(following, limit)
        nothing = super().batch(following, following, index=False)
        return DispatchBatch(start, following, nothing.columns, lost=self._lost(start, following))

    def count_records(self, start: int, end: int) -> tuple[int, int]:
        try:
            return super().count_records(start, end)
        except CorruptStoreError:
            count = store_timestamp = 0
        # a stretch with damage in it, which is skipped as dispatch does it
        while start < end and (batch := self.batch(start, end, index=False)).end > start:
            if batch.lost is not None:
                count, store_timestamp = count + 1, batch.lost.store_timestamp
            if batch.columns.count:
                count += batch.columns.count
                store_timestamp = int(batch.columns.store_timestamp[-1])
            start = batch.end
        return count, store_timestamp

    def pass_over(self, start: int, end: int) -> None:
        """The log of this node's master has no record in start .. end-1 either."""
        damage = Damage(start, end, "commitlog", "the master's log has no record there")
        logger.error("damaged bytes of the log are skipped: %s", damage)
        self.passed[start] = damage
        self.durable = max(self.durable, end)
        self.whole = max(self.whole, end)
        self.announced = max(self.announced, end)

    def trust(self, end: int, damages: Iterable[Damage]) -> None:
        """The log is durable below `end`, where a record ends, but for these damages."""
        self.durable = self.whole = end
        self.passed |= {damage.start: damage for damage in damages if damage.end <= end}

    def mended(self, start: int, end: int) -> bool:
        """The bytes start .. end-1 are right now; whether damage there was skipped before."""
        inside = {at for at, each in self.passed.items() if each.start < end and start < each.end}
        self.passed = {at: each for at, each in self.passed.items() if at not in inside}
        return bool(inside)

    def cut(self, end: int) -> None:
        """The log was cut at `end`: nothing is known of the bytes that come there."""
        self.durable = min(self.durable, end)
        if end < self.whole:
            self.whole = 0
        self.passed = {at: damage for at, damage in self.passed.items() if damage.end <= end}

    def _lost(self, start: int, end: int) -> LostRecord | None:
        """What the bytes start..end still say, if they are one record of which only the head, one
        length or the body is damaged (dispatch notices the last with property_crc)."""
        if end - start > MAX_TAIL or start // self.log.file_size != (end - 1) // self.log.file_size:
            return None
        data = bytes(self.log.view(start, end - start))
        found = (whole_but_for_head, whole_but_for_a_length, whole_but_for_body)
        record = next((each for judge in found if (each := judge(data, start)) is not None), None)
        if record is None or not names_a_folder(record.topic):
            return None
        return LostRecord(
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.store_timestamp,
            _mark_bytes(record),
        )

    def _lies_about_size(self, start: int, limit: int) -> bool:
        """Whether the record at `start`, which ends beyond `limit`, ends beyond all others too."""
        if start in self.passed:
            return True
        end = max(self.whole, self._dispatched())
        if start >= end:
            return False
        if limit >= end:
            return True
        try:
            return super().batch(start, end, index=False).end == start
        except CorruptStoreError:
            return True  # nothing else there is a record either

    def _behind(self, start: int, file: str, reason: str) -> int | None:
        """Where the next record begins behind damage at `start`; None if dispatch must stop."""
        around = (each for each in self.passed.values() if each.start <= start < each.end)
        if (inside := next(around, None)) is not None:
            return inside.end
        whole = max(self.whole, self._dispatched())
        durable = max(self.durable, whole)
        if start >= durable:
            return None
        following = next_record(self.log.mapped, start, durable)
        if following is None and start < whole:
            following = whole
        if following is not None:
            damage = Damage(start, following, file, reason)
            logger.error("damaged bytes of the log are skipped: %s", damage)
            self.passed[start] = damage
        return following


class RecordWitness:
    """What single records of the log say, for a queue that does not agree with the log
    (`queue_mender.Records`).

    A broker counts a queue from 0 again if its files are gone, as after its topic was deleted; a
    master of ours never does. The place of a record tells who wrote it: before the first epoch of
    the log (0 stands for what there was before) a broker did. Behind that either may have: a relay
    has epochs and takes a broker's bytes, and a broker may have continued with a store of ours.
    There one flipped bit in a number must not begin a queue again, so two records in a row have to
    tell it, or one with the property `CLUSTER`, which brokers write into every message that was
    sent alone; and none with the mark of our producers.
    """

    def __init__(self, log: LogPort, epochs: Callable[[], EpochTable]) -> None:
        self._log = log
        self._source = DispatchSource(log, index=False)
        self._epochs = epochs

    def holds(self, topic: str, queue_id: int, queue_offset: int, unit: tuple[int, int]) -> bool:
        log_offset, size = unit
        try:
            columns = unit_columns(self._source.batch(log_offset, log_offset + size, size).columns)
        except (StoreError, FormatError):
            return False
        rows = zip(
            columns.topic_index.tolist(), columns.queue_id.tolist(), columns.queue_offset.tolist(),
            strict=True,
        )  # fmt: skip
        return (topic, queue_id, queue_offset) in [(columns.topics[t], q, n) for t, q, n in rows]

    def may_begin_again(self, log_offset: int, size: int, *, alone: bool) -> bool:
        ours = next((each for each in self._epochs().entries if each.epoch), None)
        if ours is None or log_offset < ours.start_offset:
            return True
        try:
            record = decode_record(self._log.read(log_offset, size), physical_offset=log_offset)
        except (StoreError, FormatError):
            return False
        if PRODUCER_MARK in record.properties:
            return False
        return not alone or CLUSTER in record.properties


def _mark_bytes(record: Record) -> bytes:
    """The mark as stored; empty for none."""
    try:
        mark = mark_in(record.properties_raw)
    except FormatError:
        return b""
    return mark.encode().encode() if mark is not None else b""
