"""Dispatch that does not end at damage in what was durable.

A damaged record stops dispatch: on a master nothing may be skipped in silence. But below what was
durable when the store was opened, or was dispatched before, the records behind the damage were
acknowledged, and withholding all of them for the sake of one would lose more. There the damage is
passed over, loudly: it is kept in `passed` and logged. The queue gets pre-blank units in place of
its records.
"""

import logging
from collections.abc import Callable

from tandemlog.format.queue_unit import DelayLevels

from .commit_log import CommitLog
from .dispatch_source import BATCH_BYTES, DispatchBatch, DispatchSource
from .errors import CorruptStoreError
from .log_scan import Damage, next_record

logger = logging.getLogger(__name__)


class MendingSource(DispatchSource):
    """See the module; damage at or above both `durable` and `dispatched` is not passed over."""

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
        self.durable = 0
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
            return super().batch(start, limit, max_bytes, index=index, index_tags=index_tags)
        except CorruptStoreError as fault:
            following = self._behind(start, fault)
            if following is None:
                raise
        following = min(following, limit)
        nothing = super().batch(following, following, index=False)
        return DispatchBatch(start, following, nothing.columns)

    def _behind(self, start: int, fault: CorruptStoreError) -> int | None:
        """Where the next record stands behind damage at `start`; None where none is to be had."""
        durable = max(self.durable, self._dispatched())
        if start >= durable:
            return None
        known = self.passed.get(start)
        if known is not None:
            return known.end
        following = next_record(self.log.row, start, durable)
        if following is not None:
            damage = Damage(start, following, fault.file, fault.reason)
            logger.error("damaged bytes of the log are passed over: %s", damage)
            self.passed[start] = damage
        return following
