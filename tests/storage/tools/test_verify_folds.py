"""verify finds what a snapshot says differently from the log, names it, and says the way out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.crashed_stores import flip, log_byte
from fakes.halves import finished, half_put, put_halves
from fakes.halves import ready_desk as transactions_of
from fakes.service_world import of_folds
from fakes.stores import CONFIG, DIRECTORY, Bench
from fakes.used_stores import numbers, progress, used_store
from fakes.waiting import put_waiting, waiting_put
from fakes.waiting import ready_desk as delays_of
from tandemlog.format.lease.progress import QueueProgress
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog_server.storage.folds.delay_fold import DelayFold
from tandemlog_server.storage.folds.fold import Fold
from tandemlog_server.storage.folds.lease_fold import LeaseFold
from tandemlog_server.storage.folds.snapshot_form import decode_snapshot, encode_snapshot
from tandemlog_server.storage.folds.transaction_fold import TransactionFold
from tandemlog_server.storage.leases.progress_table import ProgressTable
from tandemlog_server.storage.producers.producer_requests import Extent
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.services.lease_desk import LeaseDesk
from tandemlog_server.storage.services.transaction_desk import EndRequest
from tandemlog_server.storage.tools.faults import VerifyReport
from tandemlog_server.storage.tools.verify import verify
from tandemlog_server.storage.tools.verify_folds import WAY_OUT

FOLDS = DIRECTORY / "tandemlog" / "folds"
PRODUCERS = DIRECTORY / "tandemlog" / "producers"
Change = Callable[[Any], object]


def checked(bench: Bench) -> VerifyReport:
    return verify(bench.config, bench.files)


def reasons(bench: Bench) -> list[str]:
    """Of the faults of snapshots; each says the way out, which works."""
    report = checked(bench)
    found = of_folds(report)
    assert found == report.faults
    assert all(each.reason.endswith(WAY_OUT) for each in found)
    if found:
        for file in {each.file for each in found}:
            bench.files.unlink(Path(file))
        bench.kill()
        bench.store.persist()
        assert checked(bench).holds
    return [each.reason for each in found]


def rewrite(bench: Bench, path: Path, fold: Fold, change: Change) -> None:
    """The snapshot, after `change` of the fold that it restores, with a valid checksum."""
    fold.restore(bytes(bench.files.content(path)))
    change(fold)
    bench.files.content(path)[:] = fold.snapshot().encode()


def test_a_store_that_was_used_holds() -> None:
    bench = used_store()
    report = checked(bench)
    assert report.holds
    assert sorted(report.folds) == ["delays", "leases", "producers", "transactions"]
    assert min(report.folds.values()) > 0
    bench.store.close()
    assert checked(bench).holds


# ---- delays


def first_two(fold: DelayFold) -> Any:
    return fold.rows.below(1 << 62, 2)


def add_row(fold: DelayFold) -> None:
    row = first_two(fold).taken(slice(1, 2))
    row.offsets[0] += 1
    fold.rows.append(row)


def later(fold: DelayFold) -> None:
    kept = first_two(fold)
    kept.due_ms[0] += 1000
    fold.rows.clear()
    fold.rows.append(kept)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda fold: fold.rows.end(first_two(fold).offsets[:1]), "waits by the log, and is not"),
        (add_row, "waits in the snapshot; by the log it does not"),
        (later, "in the snapshot"),
        (lambda fold: fold.recalled.clear(), "was called back by the log"),
        (lambda fold: fold.recalled.append(int(first_two(fold).offsets[0])), "the log has no such"),
    ],
    ids=["missing", "extra", "later", "recall missing", "recall extra"],
)
def test_a_delayed_message_that_differs_is_named(change: Change, says: str) -> None:
    bench = used_store()
    rewrite(bench, FOLDS / "delays", DelayFold(), change)
    (reason,) = reasons(bench)
    assert reason.startswith("the delayed message at log offset ")
    assert says in reason


# ---- leases


def say(entry: QueueProgress) -> Change:
    """The snapshot knows this of the queue, in place of what it knew."""

    def change(fold: LeaseFold) -> None:
        table, old = ProgressTable(), fold._table
        table.load([entry], first_offset=old.first_offset, base_offset=old.base_offset)
        fold._table = table

    return change


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            progress(ended_starts=numbers(3), ended_ends=numbers(5)),
            "queue offset 3: in flight (attempt 2) by the log, acknowledged in the snapshot",
        ),
        (
            progress(ended_starts=numbers(), ended_ends=numbers()),
            "queue offset 4: acknowledged by the log, in flight in the snapshot",
        ),
        (
            progress(floor=1),
            "queue offsets 1 to 2: acknowledged by the log, in flight in the snapshot",
        ),
        (
            progress(attempts=np.array([1, 1], np.uint16)),
            "queue offset 3: attempt 2 by the log, attempt 1 in the snapshot",
        ),
        (
            progress(offsets=numbers(3), attempts=np.array([2], np.uint16), first_ms=numbers(70)),
            "queue offset 5: attempt 1 by the log, none in the snapshot",
        ),
        (
            progress(
                offsets=numbers(3, 5, 7), attempts=np.array([2, 1, 9], np.uint16),
                first_ms=numbers(70, 80, 0),
            ),
            "queue offset 7: no attempt by the log, attempt 9 in the snapshot",
        ),
        (
            progress(first_ms=numbers(70, 81)),
            "queue offset 5: first attempt at 80 ms by the log, first attempt at 81 ms in the "
            "snapshot",
        ),
        (
            progress(errors={3: "no stick"}),
            "queue offset 3: its last error is 'no stock' by the log, 'no stick' in the snapshot",
        ),
        (
            progress(generation=1),
            "the queue has begun again 0 times by the log, 1 times in the snapshot",
        ),
    ],
)  # fmt: skip
def test_progress_that_differs_is_named(entry: QueueProgress, says: str) -> None:
    bench = used_store()
    rewrite(bench, FOLDS / "leases", LeaseFold(), say(entry))
    (reason,) = reasons(bench)
    assert reason == f"group billing, queue T/0, {says}; {WAY_OUT}"


def test_a_queue_of_which_only_one_side_knows_is_named() -> None:
    bench = used_store()
    rewrite(bench, FOLDS / "leases", LeaseFold(), say(replace(progress(), topic="U")))
    missing, extra = reasons(bench)
    assert missing.startswith("group billing, queue T/0: the log says what is done there")
    assert extra.startswith("group billing, queue U/0: the snapshot says what is done there")


def test_a_state_that_the_log_does_not_have_is_named() -> None:
    """Retention would delete what a node without the snapshot needs."""
    bench = used_store()
    rewrite(
        bench, FOLDS / "leases", LeaseFold(), lambda fold: setattr(fold._table, "base_offset", 7)
    )
    (reason,) = reasons(bench)
    assert "a complete state of all groups begins at log offset 7; the log has none" in reason


# ---- transactions


def a_half(fold: TransactionFold) -> Any:
    return next(iter(fold.halves.values()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda fold: fold.outcomes.update(paid=False),
            "transaction paid: committed by the log, rolled back in the snapshot",
        ),
        (
            lambda fold: fold.outcomes.pop("returned"),
            "transaction returned: rolled back by the log, not decided in the snapshot",
        ),
        (
            lambda fold: fold.outcomes.update(open=True),
            "transaction open: not decided by the log, committed in the snapshot",
        ),
        (
            lambda fold: fold._end(a_half(fold)),
            "is open by the log, and not in the snapshot",
        ),
        (
            lambda fold: setattr(a_half(fold), "delivered", True),
            "delivered False by the log, True in the snapshot",
        ),
        (
            lambda fold: fold.offsets.update({("billing", "T", 0): 4}),
            "group billing, queue T/0: transactions have set the offset 5 by the log, 4 in the "
            "snapshot",
        ),
        (
            lambda fold: setattr(fold, "_next_op", 0),
            "the next OP record has the queue offset",
        ),
    ],
)
def test_a_transaction_that_differs_is_named(change: Change, says: str) -> None:
    bench = used_store()
    rewrite(bench, FOLDS / "transactions", TransactionFold(), change)
    (reason,) = reasons(bench)
    assert says in reason


# ---- producers


def number_back(table: ProducerTable) -> None:
    table._producers["p"].drop_newest()
    table._stale.add("p")


def moved(table: ProducerTable) -> None:
    newest = table._producers["p"].newest
    assert newest is not None
    (extent,) = newest.extents
    newest.extents[:] = [Extent(extent.physical_offset + 4, extent.count, extent.end_offset)]
    table._stale.add("p")


def another(table: ProducerTable) -> None:
    table._producers["q"] = table._producers.pop("p")
    table._stale.add("q")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            number_back,
            "producer p: its last one is request 2 of epoch 0 by the log, request 1 of epoch 0 in "
            "the snapshot",
        ),
        (moved, "producer p, request 2 of epoch 0: 2 of 2 records at "),
        (another, "producer q: its last one is request 2 of epoch 0 in the snapshot, and the log"),
    ],
)
def test_a_producer_that_differs_is_named(change: Change, says: str) -> None:
    bench = used_store()
    rewrite(bench, PRODUCERS, ProducerTable(), change)
    (reason,) = reasons(bench)
    assert says in reason


# ---- positions


def test_many_differences_are_counted() -> None:
    bench = used_store()
    rewrite(
        bench,
        FOLDS / "transactions",
        TransactionFold(),
        lambda fold: fold.outcomes.update({f"t{number}": True for number in range(30)}),
    )
    found = reasons(bench)
    assert len(found) == 10
    assert "(20 more differ)" in found[-1]


def moved_to(bench: Bench, path: Path, log_offset: int) -> None:
    head, rows = decode_snapshot(bytes(bench.files.content(path)), 1, "")
    bench.files.content(path)[:] = encode_snapshot({**head, "log_offset": log_offset}, [rows])


def test_a_snapshot_inside_a_record_is_named() -> None:
    bench = used_store()
    at = checked(bench).folds["delays"]
    moved_to(bench, FOLDS / "delays", at - 5)
    (reason,) = reasons(bench)
    assert reason.startswith(f"it is true for the log below {at - 5}, where no record begins")


def test_a_snapshot_of_more_than_the_log_has_is_no_fault() -> None:
    bench = used_store()
    moved_to(bench, FOLDS / "delays", 1 << 20)
    report = checked(bench)
    assert report.holds
    assert "delays" not in report.folds
    assert any("is not compared: it is true for the log below 1048576" in n for n in report.notes)


def test_a_snapshot_of_another_version_is_no_fault() -> None:
    bench = used_store()
    path = FOLDS / "delays"
    head, rows = decode_snapshot(bytes(bench.files.content(path)), 1, "")
    bench.files.content(path)[:] = encode_snapshot({**head, "version": 9}, [rows])
    report = checked(bench)
    assert report.holds
    assert any("its version is not 1; the next open" in note for note in report.notes)


def test_below_damage_nothing_is_compared() -> None:
    bench = used_store()
    flip(bench, *log_byte(90))
    report = checked(bench)
    assert of_folds(report) == []
    assert not report.folds
    assert sum("is damaged, at 0" in note for note in report.notes) == 4


def test_a_record_that_an_open_would_pass_over_is_named() -> None:
    """The recovery point says that nothing for the fold came; but a message waits there."""
    bench = used_store()
    at = checked(bench).folds["delays"]
    bench.put(3)
    put_waiting(bench, waiting_put(bench, "d", delay_ms=10**7))
    bench.settle()
    (there,) = bench.store.delays.rows.below(1 << 62, 9).offsets.tolist()[2:]
    old = bytes(bench.files.content(FOLDS / "delays"))
    bench.store.persist()
    point = bench.store._parts.recovery_point
    bench.files.content(FOLDS / "delays")[:] = old
    record = point.load()
    assert record is not None
    point.save(replace(record, folds={**record.folds, "delays": (at, record.flushed)}))
    (reason,) = reasons(bench)
    assert reason.startswith(f"the record at log offset {there} changes what it says")


def test_snapshots_may_be_older_than_the_log_s_begin() -> None:
    """Nothing for the folds came for long, and retention has deleted the log behind them."""
    bench = Bench()
    bench.settle()
    bench.store.persist()
    for _ in range(30):
        bench.put(10, size=50)
        bench.settle()
    bench.store.persist()
    bench.store._cleaner.drop_before(3 * CONFIG.commit_log_file_size)
    report = checked(bench)
    assert report.holds
    assert report.log_start == 3 * CONFIG.commit_log_file_size
    assert report.folds["delays"] < report.log_start


# ---- where retention has deleted the log's beginning


def shortened_store() -> Bench:
    """A used store, whose log begins behind all that it was used for at first."""
    bench = used_store()
    delays, transactions = delays_of(bench), transactions_of(bench)
    for _ in range(8):
        bench.put(100, size=100)
    delays.roll(bench.store.log.wrote.value)
    transactions.roll_back(EndRequest("open"))
    leases = LeaseDesk(bench.store)
    leases.begin()
    leases.put_progress([progress(offsets=numbers(5), attempts=np.array([3], np.uint16),
                                  first_ms=numbers(80))])  # fmt: skip
    bench.settle()
    leases.put_state(bench.clock.now_ms())
    put_halves(bench, half_put("h5", "late"), half_put("h6", "late"))
    bench.settle()
    transactions.commit(EndRequest("late", offsets=(GroupOffset("billing", "T", 0, 7),)))
    finished(bench, transactions)
    bench.settle()
    bench.store.persist()
    bench.store._cleaner.drop_before(1 << 16)
    return bench


def test_what_the_log_does_not_tell_any_more_is_a_note() -> None:
    bench = shortened_store()
    report = checked(bench)
    assert report.log_start == 1 << 16
    assert report.holds
    assert report.notes == [
        "3 outcomes of transactions cannot be compared: the log, which begins at 65536, does not "
        "tell them any more"
    ]
    rewrite(
        bench,
        FOLDS / "transactions",
        TransactionFold(),
        lambda fold: fold.outcomes.update(paid=False),
    )
    assert checked(bench).holds


@pytest.mark.parametrize(
    ("name", "fold", "change", "says"),
    [
        (
            "delays",
            DelayFold,
            lambda fold: fold.rows.end(first_two(fold).offsets[:1]),
            "waits by the log, and is not in the snapshot",
        ),
        (
            "leases",
            LeaseFold,
            say(progress(attempts=np.array([2, 2], np.uint16))),
            "queue offset 5: attempt 3 by the log, attempt 2 in the snapshot",
        ),
        (
            "leases",
            LeaseFold,
            say(progress(floor=6, attempts=np.array([2, 3], np.uint16))),
            "queue offset 3: in flight (attempt 2) by the log, acknowledged in the snapshot",
        ),
        (
            "transactions",
            TransactionFold,
            lambda fold: fold.outcomes.update(late=False),
            "transaction late: committed by the log, rolled back in the snapshot",
        ),
        (
            "transactions",
            TransactionFold,
            lambda fold: fold.offsets.update({("billing", "T", 0): 6}),
            "transactions have set the offset 7 by the log, 6 in the snapshot",
        ),
    ],
)
def test_what_the_rest_of_the_log_tells_is_still_compared(
    name: str, fold: Callable[[], Fold], change: Change, says: str
) -> None:
    bench = shortened_store()
    rewrite(bench, FOLDS / name, fold(), change)
    assert says in reasons(bench)[0]


def test_files_deleted_by_hand_make_no_difference() -> None:
    """With the records of what waits, of open halves and of groups."""
    bench = used_store()
    for _ in range(8):
        bench.put(100, size=100)
    bench.settle()
    bench.store.persist()
    bench.store._cleaner.drop_before(1 << 16)
    report = checked(bench)
    assert report.holds
    assert len(report.folds) == 4
    waiting, groups, halves, *_ = report.notes
    assert waiting.startswith("2 delayed messages of the snapshot cannot be compared")
    assert groups.startswith("what groups did before log offset 65536 cannot be compared")
    assert halves.startswith("1 half of the snapshot cannot be compared")
