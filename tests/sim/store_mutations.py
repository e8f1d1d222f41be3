"""Rules of the store, each switched off by one patch: worlds of real stores must notice every one.

A mutation is a list of (module or class, attribute, replacement), as in ha_mutations. A rule that
is new gets a row here: the smallest patch that makes the code what it was without it. Where another
rule guards the same thing both are switched off; an attribute of objects is replaced in its class.

What chance shows too seldom a scene plays (BY_SCENE, store_scenes.py, store_scenes_of_replicas.py).
"""

import sys
from dataclasses import replace
from typing import Any

from sim.store_scenes import (
    a_file_of_an_idle_queue_is_gone,
    a_queue_that_is_not_noted,
    a_request_of_the_lost_tail,
    another_request_of_that_number,
    no_producers_are_noted,
    notes_of_a_lost_tail,
    producers_that_are_not_noted,
)
from sim.store_scenes_of_replicas import (
    a_fresh_disk_after_expiry,
    a_master_that_slept_through_a_term,
    a_slave_without_the_tables,
    a_topic_of_the_master_alone,
    bytes_that_are_no_records,
    damage_before_acknowledged_records,
    damage_of_the_last_record,
)
from sim.store_stage import Scene
from tandemlog_server.ha.master import term
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.sync_state_set import SyncStateSet
from tandemlog_server.ha.master.term import own_record
from tandemlog_server.ha.slave.store import Outcome, SlaveStore
from tandemlog_server.ha.state import InSyncRecord, Member
from tandemlog_server.storage.dispatch.reput import ReputService
from tandemlog_server.storage.folds.fold_file import FoldFile
from tandemlog_server.storage.log import log_scanner
from tandemlog_server.storage.log.log_scanner import LogScanner
from tandemlog_server.storage.log.raw_intake import RawIntake
from tandemlog_server.storage.producers.producer_requests import New, Request
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.queues import consume_queue_store
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.queues.queue_checkpoint import QueueCheckpoint
from tandemlog_server.storage.queues.queue_floors import QueueFloors
from tandemlog_server.storage.recovery import analysis, opening, prologue, promotion, recovery
from tandemlog_server.storage.state_files import producer_begins, queue_begins
from tandemlog_server.storage.state_files.recovery_point import RecoveryPointFile

Patch = tuple[Any, str, Any]

RUN_ONCE = ReputService.run_once
CHECK = ProducerTable.check


def dispatch_what_is_written(this: ReputService, limit: int | None = None) -> int:
    log: Any = this._source.log
    return RUN_ONCE(this, log.committed.value)


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


def nothing(*_: Any, **__: Any) -> None:
    return None


def no_numbers(*_: Any) -> dict[int, int]:
    return {}


def no_producers(table: ProducerTable, log_offset: int) -> bytes:
    fresh = ProducerTable()
    fresh.reset(log_offset)
    return fresh.snapshot().encode()


def ends_alone(offset: int, ends: Any, least: Any) -> QueueCheckpoint:
    return QueueCheckpoint(offset, ends)


def noted_at_once(this: FoldFile, flushed: int, *, closing: bool) -> None:
    SAVE_FOLD(this, sys.maxsize, closing=closing)


def stored_as_it_comes(this: RawIntake, offset: int, data: Any, damaged_until: int = 0) -> None:
    this._store_part(offset, data)


def joins_without_tables(this: SyncStateSet, *known: Any) -> Any:
    return PROPOSE(this, *known[:5])


def always(*_: Any) -> bool:
    return True


def never(*_: Any) -> bool:
    return False


def damage_is_the_end(mapped: Any, start: int, **known: Any) -> LogScanner:
    return LogScanner(mapped, start, stop=known.get("stop"))


def the_last_record_is_cut(mapped: Any, start: int, **known: Any) -> LogScanner:
    return LogScanner(mapped, start, **{**known, "whole": 0, "keep_tail": False})


def settled_at_once(*arguments: Any) -> tuple[InSyncRecord, frozenset[Member]]:
    record, unheard = OWN_RECORD(*arguments)
    return replace(record, settled=True), unheard


def constant(value: Any) -> property:
    """An attribute that stays what it is."""
    return property(lambda _: value, nothing)


OWN_RECORD = own_record
SAVE_FOLD = FoldFile.save
PROPOSE = SyncStateSet.propose
NOT_WITHDRAWN: Patch = (opening, "withdraw", nothing)
NO_HEADLESS: Patch = (log_scanner, "whole_but_for_head", nothing)
MUTATIONS: dict[str, list[Patch]] = {
    "dispatch goes beyond what is confirmed": [
        (ReputService, "run_once", dispatch_what_is_written)
    ],
    "a slave acknowledges what it has not fsynced": [(SlaveStore, "flush", settle_without_fsync)],
    "a request sent again is stored again": [(ProducerTable, "check", everything_is_new)],
    "a new master does not read the log's end": [(promotion, "read_tail", the_end_is_known)],
    "an open does not rebuild the producers": [
        (recovery, "_load_producers", producers_begin_at_the_end)
    ],
    "notes of a lost tail stay": [NOT_WITHDRAWN],
    "producers are noted ahead of the flush": [
        (FoldFile, "save", noted_at_once),
        NOT_WITHDRAWN,
    ],
    "a new slave is not told the numbers of idle queues": [(ConsumeQueueStore, "idle", no_numbers)],
    "a new slave is not told of idle producers": [(prologue, "table_before", no_producers)],
    "a new slave keeps the numbers of idle queues in memory": [
        (queue_begins, "write_small", nothing)
    ],
    "a new slave keeps idle producers in memory": [(producer_begins, "write_small", nothing)],
    "a queue that is made again has no floor": [(QueueFloors, "keep", nothing)],
    "floors are not noted": [(consume_queue_store, "QueueCheckpoint", ends_alone)],
    "retention does not wait for the queues on the disk": [
        (RecoveryPointFile, "dispatched", constant(sys.maxsize))
    ],
    "retention does not wait for the producers on the disk": [
        (ProducerTable, "noted", constant(sys.maxsize))
    ],
    "retention does not wait for the first table of producers": [
        (FoldFile, "keep_from", property(lambda this: this.fold.next_offset))
    ],
    "a slave stores what is no record": [(RawIntake, "take", stored_as_it_comes)],
    "a slave joins without the tables": [(SyncStateSet, "propose", joins_without_tables)],
    "who makes a topic waits for nobody": [(MasterGroup, "tables_held", always)],
    "the set that a term begins with is settled": [(term, "own_record", settled_at_once)],
    "an open takes damage for the end of the log": [(analysis, "LogScanner", damage_is_the_end)],
    "a promotion takes damage for the end of the log": [
        (promotion, "LogScanner", damage_is_the_end)
    ],
    "an open cuts a damaged last record": [
        (analysis, "LogScanner", the_last_record_is_cut),
        NO_HEADLESS,
    ],
    "a promotion cuts a damaged last record": [
        (promotion, "LogScanner", the_last_record_is_cut),
        NO_HEADLESS,
    ],
    "any request of that number is the same": [(Request, "is_other", never)],
}

BY_SCENE: dict[str, Scene] = {
    "notes of a lost tail stay": notes_of_a_lost_tail,
    "producers are noted ahead of the flush": a_request_of_the_lost_tail,
    "a new slave is not told the numbers of idle queues": a_fresh_disk_after_expiry,
    "a new slave is not told of idle producers": a_fresh_disk_after_expiry,
    "a new slave keeps the numbers of idle queues in memory": a_fresh_disk_after_expiry,
    "a new slave keeps idle producers in memory": a_fresh_disk_after_expiry,
    "a queue that is made again has no floor": a_file_of_an_idle_queue_is_gone,
    "floors are not noted": a_file_of_an_idle_queue_is_gone,
    "retention does not wait for the queues on the disk": a_queue_that_is_not_noted,
    "retention does not wait for the producers on the disk": producers_that_are_not_noted,
    "retention does not wait for the first table of producers": no_producers_are_noted,
    "a slave stores what is no record": bytes_that_are_no_records,
    "a slave joins without the tables": a_slave_without_the_tables,
    "who makes a topic waits for nobody": a_topic_of_the_master_alone,
    "the set that a term begins with is settled": a_master_that_slept_through_a_term,
    "an open takes damage for the end of the log": damage_before_acknowledged_records,
    "a promotion takes damage for the end of the log": damage_before_acknowledged_records,
    "an open cuts a damaged last record": damage_of_the_last_record,
    "a promotion cuts a damaged last record": damage_of_the_last_record,
    "any request of that number is the same": another_request_of_that_number,
}
"""What chance shows too seldom."""
