"""Rules of the store, each switched off by one patch: worlds of real stores must notice every one.

A mutation is a list of (module or class, attribute, replacement), as in ha_mutations. A rule that
is new gets a row here: the smallest patch that makes the code what it was without it.
"""

from typing import Any

import storage.log_surgery
import storage.recovery
from ha.slave_store import Outcome, SlaveStore
from storage.producer_table import New, ProducerTable
from storage.reput import ReputService

Patch = tuple[Any, str, Any]

RUN_ONCE = ReputService.run_once
CHECK = ProducerTable.check


def dispatch_what_is_written(this: ReputService, limit: int | None = None) -> int:
    return RUN_ONCE(this, this._source.log.committed.value)


def settle_without_fsync(this: SlaveStore) -> Outcome:
    this._confirm(this.store.log.wrote.value)
    return Outcome(this.store.log.wrote.value, this.store.reputed.value)


def everything_is_new(this: ProducerTable, mark: Any, count: int) -> Any:
    CHECK(this, mark, count)
    return New()


def the_end_is_known(parts: Any, end: int) -> tuple[int, int]:
    return end, 0


def producers_begin_at_the_end(parts: Any, report: Any) -> None:
    parts.producers.reset(report.log_end)


MUTATIONS: dict[str, list[Patch]] = {
    "dispatch goes beyond what is confirmed": [
        (ReputService, "run_once", dispatch_what_is_written)
    ],
    "a slave acknowledges what it has not fsynced": [(SlaveStore, "settle", settle_without_fsync)],
    "a request sent again is stored again": [(ProducerTable, "check", everything_is_new)],
    "a new master does not read the log's end": [
        (storage.log_surgery, "read_tail", the_end_is_known)
    ],
    "an open does not rebuild the producers": [
        (storage.recovery, "_load_producers", producers_begin_at_the_end)
    ],
}
