"""Where in the log store times go back: after a clock that was wrong was set right.

    log offset    0 ······ 400 ········· 900 ······▶        tandemlog/time-steps.json: [900]
    store time    10:00 ── 10:05, 2036 ─ 2036, 10:20 ──▶

Between two steps times never go back, so a search by time looks through each stretch by itself, the
newest first (queues/queue_search.py). The list is derived from the log by dispatch. It is saved
when it changes; if it is lost, or a step is missed, a search finds one of several places that fit.
RocketMQ does not look for order, so a log of its own may have steps too.
"""

import logging
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

logger = logging.getLogger(__name__)

VERSION = 1
LEAST_MS = 1_000
"""Smaller steps back do no harm: NTP makes them, and RocketMQ stores them."""
MAX_STEPS = 1_024


class TimeSteps:
    """`offsets` are log positions of records, ascending, each more than LEAST_MS earlier than the
    record before. Written by dispatch, read by any thread."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self._path = path
        self._files = files
        self._lock = threading.Lock()
        self._newest = 0
        self.offsets: tuple[int, ...] = ()

    def load(self) -> None:
        """No file, or a damaged one: no steps are known."""
        data = read_small(self._files, self._path)
        if data is None:
            return
        try:
            self.offsets = tuple(int(offset) for offset in decode_checked(data)["offsets"])
        except (ValueError, KeyError, TypeError):
            logger.warning(
                "%s is damaged and ignored: searches by time may be less exact", self._path
            )

    def begin_after(self, store_timestamp: int) -> None:
        """The record before the next call of `add` has that time; 0: unknown."""
        self._newest = store_timestamp

    def add(self, physical_offset: NDArray[np.int64], store_timestamp: NDArray[np.int64]) -> None:
        """Columns of the next records in the log's order; at least one."""
        newest, self._newest = self._newest, int(store_timestamp[-1])
        # one comparison for a batch in which time only goes forward
        least = np.empty(len(store_timestamp), np.int64)
        least[0] = newest - LEAST_MS
        np.subtract(store_timestamp[:-1], LEAST_MS, out=least[1:])
        rows = (store_timestamp < least).nonzero()[0]
        if not len(rows):
            return
        steps = (int(physical_offset[row]) for row in rows)
        with self._lock:
            new = sorted({*self.offsets, *steps})[-MAX_STEPS:]
            self._change(tuple(new))

    def meet(self, begin: int, end: int) -> bool:
        """Whether there is a step in the log begin .. end."""
        return any(begin <= offset <= end for offset in self.offsets)

    def truncate(self, log_offset: int) -> None:
        """The log ends at `log_offset` now."""
        with self._lock:
            self._newest = 0
            self._change(tuple(each for each in self.offsets if each < log_offset))

    def drop_before(self, log_offset: int) -> None:
        """The log begins at `log_offset` now."""
        with self._lock:
            self._change(tuple(each for each in self.offsets if each >= log_offset))

    def _change(self, offsets: tuple[int, ...]) -> None:
        if offsets == self.offsets:
            return
        self.offsets = offsets
        document = {"version": VERSION, "offsets": list(offsets)}
        try:
            write_small(self._files, self._path, encode_checked(document))
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)
