"""Rules of the store, each switched off by one patch: worlds of real stores must notice every one.

A mutation is a list of (module or class, attribute, replacement), as in ha_mutations. A rule that
is new gets a row here: the smallest patch that makes the code what it was without it.
"""

from typing import Any

import ha.sync_state_set
import storage.cleaning
import storage.log_surgery
import storage.recovery
from fakes.memory_files import MemoryFiles
from ha.slave_store import Outcome, SlaveStore
from storage.consume_queue_store import ConsumeQueueStore
from storage.index_service import IndexService
from storage.last_stop import LastStop
from storage.persistence import Persistence
from storage.producer_table import New, ProducerTable
from storage.put_path import PutPath
from storage.reput import ReputService
from storage.set_aside import SetAsideNote

Patch = tuple[Any, str, Any]

RUN_ONCE = ReputService.run_once
SAVE_POINT = Persistence._save_point
DECIDE = storage.cleaning.decide
CHECK = ProducerTable.check
QUEUES_TRUNCATE = ConsumeQueueStore.truncate


def dispatch_what_is_written(this: ReputService, limit: int | None = None) -> int:
    return RUN_ONCE(this, this._source.log.committed.value)


def settle_without_fsync(this: SlaveStore) -> Outcome:
    this._confirm(this.store.log.wrote.value)
    return Outcome(this.store.log.wrote.value, this.store.reputed.value)


def point_at_what_is_written(this: Persistence, queues: Any, flushed: int, durable: int) -> Any:
    return SAVE_POINT(this, queues, this._parts.log.wrote.value, durable)


def nothing(*_: Any, **__: Any) -> None:
    return None


def everything_may_go(oldest: Any, config: Any, **settings: Any) -> Any:
    return DECIDE(oldest, config, **{**settings, "keep_from": 1 << 62})


def everything_is_new(this: ProducerTable, mark: Any, count: int) -> Any:
    CHECK(this, mark, count)
    return New()


def the_end_is_known(parts: Any, end: int) -> tuple[int, int]:
    return end, 0


def joins_with_anything(durable: int | None, need: int) -> bool:
    return durable is not None


def producers_begin_at_the_end(parts: Any, report: Any) -> None:
    parts.producers.reset(report.log_end)


MUTATIONS: dict[str, list[Patch]] = {
    "dispatch goes beyond what is confirmed": [
        (ReputService, "run_once", dispatch_what_is_written)
    ],
    "a slave acknowledges what it has not fsynced": [(SlaveStore, "settle", settle_without_fsync)],
    "the recovery point speaks of what is not fsynced": [
        (Persistence, "_save_point", point_at_what_is_written)
    ],
    "a cut leaves the producers as they are": [(ProducerTable, "truncate", nothing)],
    "a cut leaves the index as it is": [(IndexService, "truncate", nothing)],
    "a cut leaves its bytes behind the end": [(MemoryFiles, "zero_range", nothing)],
    "retention drops what is not dispatched": [(storage.cleaning, "decide", everything_may_go)],
    "a request sent again is stored again": [(ProducerTable, "check", everything_is_new)],
    "a new master does not read the log's end": [
        (storage.log_surgery, "read_tail", the_end_is_known)
    ],
    "a member joins without the confirmed bytes": [
        (ha.sync_state_set, "may_join", joins_with_anything)
    ],
    "an open does not rebuild the producers": [
        (storage.recovery, "_load_producers", producers_begin_at_the_end)
    ],
    "a failed fsync is forgotten by the next open": [(LastStop, "note_failed_fsync", nothing)],
    "a log is set aside without a note": [
        (SetAsideNote, "save", nothing),
        (SetAsideNote, "remove", nothing),
    ],
    "a new master stores at the time of the last record": [(PutPath, "begin_after", nothing)],
}
