"""The puts of a store: of its clients, and of its own services.

    client    put(batch)       waits for dispatch (put_pacing.py) ─▶ lock ─▶ checks ─▶ append
    service   put_own(frame)                                         lock ─▶ frame() ─▶ append

A service looks at its fold and appends what follows from it: a delayed message that is due, the
progress of a group. Between the look and the append nothing else may change the log, or a message
could be delivered and recalled. So `frame` is called with the write lock taken.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tandemlog.format.constants import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.record.batch import RecordBatch

from ..delays.delay_check import DelayCheck
from ..errors import BatchRefusedError, StoreBusyError
from ..store_parts import StoreParts
from ..transactions.half_check import HalfCheck
from .put_pacing import PutPacing
from .put_path import PutPath, PutResult
from .targets import PutTargets


class StorePuts:
    """See the module. `prepare` is called with the lock taken, before each append; it raises while
    the store accepts no puts. It is told whether the append helps to free the disk."""

    def __init__(
        self,
        parts: StoreParts,
        write_lock: AbstractContextManager[object],
        prepare: Callable[[bool], None],
    ) -> None:
        self._clock, self._stats = parts.clock, parts.stats
        self._lock = write_lock
        self._prepare = prepare
        self._pacing = PutPacing(parts.confirmed, parts.reputed, parts.config.max_reput_lag_bytes)
        config, levels = parts.config, DelayLevels(parts.config.delay_levels)
        targets = PutTargets(
            parts.topics,
            parts.queue_table,
            config.max_queues,
            {TIMER_TOPIC: 1, SCHEDULE_TOPIC: levels.max_level, HALF_TOPIC: 1},
        )
        delays = DelayCheck(
            parts.delays,
            levels,
            targets.message_refusal,
            max_delay_ms=config.max_delay_ms,
            max_delayed=config.max_delayed,
        )
        self.halves = halves = HalfCheck(
            parts.transactions, targets.message_refusal, max_open=config.max_open_halves
        )
        self._path = PutPath(parts.log, parts.queue_table, parts.producers, targets, delays, halves)

    def put(self, batch: RecordBatch, now_ms: int | None, holder: str, *, paced: bool) -> PutResult:
        """See MessageStore.put; `paced`: dispatch runs, and may be waited for."""
        began = self._clock.monotonic()
        if paced:
            self._pacing.wait()
        try:
            with self._lock:
                self._prepare(False)
                now = self._clock.now_ms() if now_ms is None else now_ms
                result = self._path.put(batch, now, holder)
        except BatchRefusedError:
            self._stats.count_refused()
            raise
        except StoreBusyError:
            self._stats.count_busy()
            raise
        self._stats.count_put(
            batch.count, batch.byte_size, self._clock.monotonic() - began, again=result.duplicate
        )
        return result

    def put_own(
        self, frame: Callable[[], RecordBatch | None], *, frees: bool = False
    ) -> PutResult | None:
        """See MessageStore.put_own."""
        with self._lock:
            self._prepare(frees)
            batch = frame()
            if batch is None:
                return None
            return self._path.put_own(batch, self._clock.now_ms())

    def begin_after(self, store_timestamp: int, log_offset: int) -> None:
        """This store begins to append at `log_offset`, behind a record of that time (ms)."""
        self._path.begin_after(store_timestamp)
        self.halves.begin_term()
        self._pacing.begin_at(log_offset)
