"""The fold of progress records over a store: restarts, lost snapshots, states, other records."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.stores import Bench
from tandemlog.format.errors import FormatError
from tandemlog.format.lease.progress import QueueProgress
from tandemlog_server.storage.folds.fold import ANYWHERE
from tandemlog_server.storage.folds.lease_fold import LeaseFold
from tandemlog_server.storage.services.lease_desk import LeaseDesk


def ended(end: int, group: str = "g", **fields: object) -> QueueProgress:
    """All below `end` is done."""
    row = QueueProgress(
        group, "T", 0, ended_starts=np.array([0]), ended_ends=np.array([end])
    )  # fmt: skip
    return replace(row, **fields)  # type: ignore[arg-type]


def tried(*offsets: int) -> QueueProgress:
    return QueueProgress(
        "g", "T", 0,
        offsets=np.array(offsets), attempts=np.full(len(offsets), 2, np.uint16),
        first_ms=np.full(len(offsets), 7), errors={offsets[0]: "no"},
    )  # fmt: skip


def state(fold: LeaseFold) -> list[tuple[object, ...]]:
    return [
        (
            each.group, each.topic, each.queue_id, each.floor, each.offsets.tolist(),
            each.attempts.tolist(), dict(each.errors),
        )
        for each in fold.everything()[0]
    ]  # fmt: skip


def test_records_give_the_state_and_a_restart_keeps_it() -> None:
    bench = Bench()
    desk = LeaseDesk(bench.store)
    desk.begin()
    desk.put_progress([ended(3), ended(9, "other")])
    desk.put_progress([tried(4, 6)])
    assert not desk.has_applied(desk.written)
    bench.settle()
    assert desk.has_applied(desk.written)
    expected = [("g", "T", 0, 3, [4, 6], [2, 2], {4: "no"}), ("other", "T", 0, 9, [], [], {})]
    assert state(bench.store.leases) == expected
    assert state(bench.reopen().leases) == expected
    bench.put(3)
    bench.settle()
    assert state(bench.kill().leases) == expected


def test_without_its_snapshot_the_log_says_the_same() -> None:
    bench = Bench()
    LeaseDesk(bench.store).put_progress([ended(3)])
    bench.put()
    bench.settle()
    before = state(bench.store.leases)
    bench.store.close()
    bench.files.unlink(bench.config.directory / "tandemlog" / "folds" / "leases")
    bench.open()
    bench.settle()
    assert state(bench.store.leases) == before == [("g", "T", 0, 3, [], [], {})]


def test_other_records_of_the_service_topic_are_skipped() -> None:
    bench = Bench()
    desk = LeaseDesk(bench.store)
    desk._put(b"something of another service")
    desk.put_progress([ended(1)])
    bench.settle()
    assert [row[3] for row in state(bench.store.leases)] == [1]


def test_a_record_that_cannot_be_read_is_a_fault_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    desk = LeaseDesk(bench.store)
    desk._put(b"TLWP\xff of a later version, which is longer than a head")
    desk.put_progress([ended(1)])
    bench.settle()
    assert [row[3] for row in state(bench.store.leases)] == [1]
    assert "progress of groups at offset 0 of the log" in caplog.text


def test_a_state_takes_the_place_of_the_records_before_it() -> None:
    bench = Bench()
    desk = LeaseDesk(bench.store)
    desk.begin()
    fold = bench.store.leases
    assert fold.needs_from() == ANYWHERE
    assert not desk.state_is_due()
    desk.put_progress([ended(3), tried(5)])
    bench.settle()
    assert fold.needs_from() == 0
    while bench.store.log.wrote.value < bench.config.commit_log_file_size + 100:
        bench.put(5)
    bench.settle()
    assert desk.state_is_due()
    begin = bench.store.log.wrote.value
    desk.put_state(1)
    bench.settle()
    assert fold.needs_from() == begin
    assert not desk.state_is_due()
    # a node whose log begins there
    fresh = LeaseFold()
    fresh.reset(begin)
    batch = bench.store.reput._source.batch(
        begin, bench.store.confirmed.value, 1 << 20, index=False
    )
    fresh.apply(batch)
    assert state(fresh) == state(fold)
    assert fresh.needs_from() == begin


def test_deleted_topics_are_forgotten_with_the_state() -> None:
    bench = Bench()
    desk = LeaseDesk(bench.store)
    desk.put_progress([ended(3), QueueProgress("g", "gone", 0, floor=1)])
    bench.settle()
    dropped = desk.forgotten()
    assert [(each.topic, each.dropped) for each in dropped] == [("gone", True)]
    desk.put_progress(dropped)
    bench.settle()
    assert [row[1] for row in state(bench.store.leases)] == ["T"]
    desk.put_progress(desk.dropped("g"))
    bench.settle()
    assert state(bench.store.leases) == []


@pytest.mark.parametrize("rows", [b"\1", b"\xff\xff\0\0abc", b"\4\0\0\0abcd"])
def test_another_form_of_the_snapshot_is_refused(rows: bytes) -> None:
    fold = LeaseFold()
    with pytest.raises(FormatError):
        fold._decode({"first_offset": 0, "base_offset": 0}, rows)
