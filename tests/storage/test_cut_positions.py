"""Which positions of readers a store takes for cut, and how it names its log."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.epochs import EpochTable
from tandemlog.format.files.log_history import NO_CUT
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import StoreBusyError

REPLICA = replace(CONFIG, confirm=ConfirmSource.REPLICATION)
IDENTITY = DIRECTORY / "tandemlog" / "log-identity.json"


def led(files: MemoryFiles | None = None) -> Bench:
    bench = Bench(REPLICA, files)
    bench.store.become_master(1)
    return bench


def copied_disk(disk: MemoryFiles) -> MemoryFiles:
    """Without its locks."""
    other, folders = MemoryFiles(), [DIRECTORY]
    while folders:
        folder = folders.pop()
        other.make_directory(folder)
        for path in map(folder.joinpath, disk.listdir(folder)):
            status = disk.status(path)
            if status is not None and status.is_directory:
                folders.append(path)
            elif path.name != "lock":
                other.atomic_replace(path, disk.read_file(path))
    return other


def confirm(bench: Bench) -> None:
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1), st.data())
def test_the_first_message_behind_a_cut(puts: list[tuple[int, int]], data: st.DataObject) -> None:
    """Dispatched or not, and wherever the log is confirmed to."""
    bench = led()
    begins: list[tuple[int, int, int]] = []  # log offset, queue, number
    counts = [0, 0, 0]
    for queue_id, count in puts:
        at = bench.put(count, queue_id=queue_id).segments[0].physical_offset
        begins.append((at, queue_id, counts[queue_id]))
        counts[queue_id] += count
        if data.draw(st.booleans()):
            confirm(bench)
    bench.store.flush()
    cut = data.draw(st.sampled_from([*begins, (bench.store.log.wrote.value, -1, 0)]))[0]
    below = [0, 0, 0]
    for at, queue_id, number in begins:
        if at < cut:
            below[queue_id] = number + next(
                count for (_, count), begin in zip(puts, begins, strict=True) if begin[0] == at
            )
    rows = [("T", queue_id, offset) for queue_id in range(4) for offset in range(8)]
    expected = {
        index: ([*below, 0])[queue_id]
        for index, (_, queue_id, offset) in enumerate(rows)
        if offset > ([*below, 0])[queue_id]
    }
    assert bench.store.cut_positions(rows, cut) == expected


def test_nothing_is_cut_from_a_log_that_went_on() -> None:
    bench = led()
    bench.put(3)
    assert bench.store.cut_positions([("T", 0, 99)], NO_CUT) == {}


def test_a_queue_that_is_not_there_begins_at_its_beginning() -> None:
    bench = led()
    assert bench.store.cut_positions([("gone", 3, 5)], 0) == {0: 0}


def test_a_long_way_to_dispatch_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = led()
    bench.put(3)
    monkeypatch.setattr("tandemlog_server.storage.cut_positions.MAX_TAIL_BYTES", 10)
    with pytest.raises(StoreBusyError, match="try again"):
        bench.store.cut_positions([("T", 0, 1)], bench.store.log.wrote.value)
    confirm(bench)
    assert bench.store.cut_positions([("T", 0, 4)], bench.store.log.wrote.value) == {0: 3}


def test_where_a_queue_ends_for_a_commit() -> None:
    bench = led()
    bench.put(3)
    assert bench.store.queue_end("T", 0) == 3, "what is not confirmed yet may have been read"
    assert bench.store.queue_end("T", 9) == 0


def test_each_term_has_an_id_that_stays() -> None:
    bench = led()
    bench.put()
    bench.store.flush()
    first = bench.store.log_identity.history
    assert first.newest[0] == 1
    assert first.newest[1]
    assert first.log_id
    bench.crash()
    assert bench.store.log_identity.history == first
    bench.store.become_master(2)
    second = bench.store.log_identity.history
    assert second.log_id == first.log_id
    assert second.terms[0] == first.terms[0]
    assert first.cut_against(second) == second.terms[1].start_offset


def test_two_copies_of_a_store_are_two_logs() -> None:
    """A store is copied while it stands, both go on, and both count to the same epoch."""
    bench = led()
    bench.put(3)
    confirm(bench)
    bench.store.close()
    copied = Bench(REPLICA, copied_disk(bench.files))
    bench.open()
    for each in (bench, copied):
        each.store.become_master(2)
        each.put(3)
    one, other = (each.store.log_identity.history for each in (bench, copied))
    assert bench.store.epochs.table == copied.store.epochs.table
    assert one.cut_against(other) == other.cut_against(one) == one.terms[1].start_offset


def test_a_log_that_is_begun_anew_is_another_one() -> None:
    bench = led()
    bench.put(3)
    before = bench.store.log_identity.history
    bench.store.become_slave()
    bench.store.reset(0)
    bench.store.epochs.replace(EpochTable())
    bench.store.become_master(1)
    after = bench.store.log_identity.history
    assert before.cut_against(after) == 0
    assert before.log_id != after.log_id


def test_a_slave_has_the_ids_of_its_master() -> None:
    master, slave = led(), Bench(REPLICA)
    slave.store.epochs.replace(master.store.epochs.table)
    assert slave.store.log_identity.newest == (1, 0), "not known yet, which fits every id"
    slave.store.log_identity.replace_from_json(master.store.log_identity.to_json())
    assert slave.store.log_identity.history == master.store.log_identity.history
    slave.crash()
    assert slave.store.log_identity.history == master.store.log_identity.history


def test_a_damaged_file_is_as_good_as_none() -> None:
    bench = led()
    bench.store.close()
    for path in (IDENTITY, IDENTITY.with_name(IDENTITY.name + ".bak")):
        bench.files.atomic_replace(path, b"no JSON")
    bench.open()
    assert bench.store.log_identity.newest == (1, 0)
    assert any("log-identity" in note for note in bench.store.recovery.notes)
    bench.store.become_master(2)
    assert bench.store.log_identity.newest[1]


def test_an_id_is_of_an_epoch_at_its_place() -> None:
    bench = led()
    identity = bench.store.log_identity
    assert identity.newest[1]
    bench.store.epochs.replace(EpochTable().append(1, 500))
    assert identity.newest == (1, 0)
