"""What a broker that takes the store over reads of delays: two files, written by masters.

    config/delayOffset.json   for each level the first unit of its queue that still waits
    config/timercheck         the same of the queue of timers, and the time up to which they came

A broker delivers from these units on. Levels come in the order of their queue, so
nothing comes again; of timers those come again that came before an older one, since a broker has
no way to leave one out.

A broker also keeps a wheel and a log of the timers that it has read. Both follow from the queue,
and a wheel from before this node led would deliver what has come since: they are removed, and the
broker builds them again from the unit that `timercheck` names.

The files never say more than what is fsynced: they are written when the log is flushed to where
the fold stands, and only if they change.
"""

import json
from struct import Struct
from typing import Final

import numpy as np

from tandemlog.format.constants import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.timing import PRECISION_MS

from ..disk.small_files import remove_small, write_small
from ..message_store import MessageStore

_TIMER_CHECK: Final = Struct(">7q")
_TIMER_CHECK_SIZE: Final = 4096
_UNITS: Final = 4096
_WHEEL: Final = "timerwheel"
_WHEEL_LOG: Final = "timerlog"


class BrokerProgress:
    """See the module; one caller at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._fold = store.delays
        self._config = store.directory / "config"
        # of each queue the first unit that may still wait, and of which state of the fold
        self._first: dict[tuple[str, int], int] = {}
        self._generation = -1
        self._written: tuple[object, ...] = ()
        self._counter = 0
        self._wheel_removed = False

    def save(self) -> bool:
        """Write what is true now; False if it is not durable yet. Raises StoreError, OSError."""
        store = self._store
        with self._fold.lock:
            reached, generation = self._fold.next_offset, self._fold.generation
            if store.log.flushed.value < reached or store.queues.next_offset < reached:
                return False
            if generation != self._generation:
                # after a cut, records before these may wait again
                self._first.clear()
                self._generation = generation
            queues = sorted(
                (topic, queue_id)
                for topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
                for queue_id in store.queue_table.queues_of(topic)
            )
            for queue in queues:
                self._first[queue] = self._first_waiting(*queue)
        levels = {
            queue_id + 1: first
            for (topic, queue_id), first in sorted(self._first.items())
            if topic == SCHEDULE_TOPIC
        }
        timers = self._first.get((TIMER_TOPIC, 0))
        now = store.clock.now_ms()
        state = (levels, timers, now // 60_000 if timers is not None else 0)
        if queues and state != self._written:
            self._write(levels, timers, now)
            self._written = state
        return True

    def _first_waiting(self, topic: str, queue_id: int) -> int:
        store, rows = self._store, self._fold.rows
        dense = store.queue_table.get(topic, queue_id)
        (end,) = store.queues.ends_of([dense])
        at = max(self._first.get((topic, queue_id), 0), store.queues.min_offset(dense))
        while at < end:
            units = store.queues.read(dense, at, min(_UNITS, end - at))
            if not len(units):
                break
            waits = rows.known(units["physical_offset"].astype(np.int64))
            if waits.any():
                return at + int(waits.argmax())
            at += len(units)
        return min(at, end)

    def _write(self, levels: dict[int, int], timers: int | None, now_ms: int) -> None:
        files, self._counter = self._store.files, self._counter + 1
        if levels:
            version = {"counter": self._counter, "stateVersion": 0, "timestamp": now_ms}
            table = {str(level): offset for level, offset in levels.items()}
            document = {"dataVersion": version, "offsetTable": table}
            data = json.dumps(document, indent="\t").encode()
            write_small(files, self._config / "delayOffset.json", data)
        if timers is None:
            return
        self._remove_wheel()
        read_ms = now_ms // PRECISION_MS * PRECISION_MS
        check = _TIMER_CHECK.pack(read_ms, 0, timers, timers, 0, now_ms, self._counter)
        write_small(files, self._config / "timercheck", check.ljust(_TIMER_CHECK_SIZE, b"\0"))

    def _remove_wheel(self) -> None:
        if self._wheel_removed:
            return
        files, root = self._store.files, self._store.directory
        folder = root / _WHEEL_LOG
        for name in files.listdir(folder):
            files.unlink(folder / name)
        remove_small(files, root / _WHEEL)
        self._wheel_removed = True
