"""A file of the log is written again under its readers and its writer, and what was derived from
it comes back."""

import errno
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.batches import Put, batch_of
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import (
    FlushFailedError,
    NotMendedError,
    StoreReadOnlyError,
    UnreadableError,
)
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.scrub.bad_places import KEPT, occupied
from tandemlog_server.storage.scrub.log_mending import EVIDENCE_KEPT, Patch, evidence

FILE = 8192
OWN = DIRECTORY / "tandemlog"
BODIES = [b"%d" % number + b"." * 900 for number in range(20)]
MANY = 200
"""More calls than any mending makes."""


def filled(*, buffered: bool = False) -> Bench:
    """Three files of the log, the last of them in use."""
    bench = Bench()
    bench.reopen(property_crc=True, buffered=buffered)
    for number, body in enumerate(BODIES):
        bench.clock.advance(0.001)
        keys = b"KEYS\x01k%d\x02" % number
        bench.store.put(batch_of([Put("T", number % 2, body, keys)]))
    bench.settle()
    return bench


def path_of(base: int) -> Path:
    return DIRECTORY / "commitlog" / f"{base:020d}"


def contents(files: MemoryFiles, base: int) -> bytes:
    return files.read_file(path_of(base))


def flip(files: MemoryFiles, offset: int, mask: int = 1) -> None:
    """On the disk and in the page cache."""
    base = offset - offset % FILE
    handle = files.open(path_of(base))
    old = files.pread(handle, 1, offset - base)
    files.pwrite(handle, bytes([old[0] ^ mask]), offset - base)
    files.fdatasync(handle)
    files.close(handle)


def record_at(store: MessageStore, number: int) -> tuple[int, int]:
    """Begin and end of the record with that body."""
    units = store.queues.read(store.queue_table.get("T", number % 2), number // 2, 1)
    begin = int(units["physical_offset"][0])
    return begin, begin + int(units["size"][0])


def all_bodies(bench: Bench) -> list[bytes]:
    return sorted(bench.bodies("T", 0) + bench.bodies("T", 1), key=BODIES.index)


@pytest.mark.parametrize("number", [3, 12, 19])
def test_a_flip_is_mended_while_it_is_read(number: int) -> None:
    bench = filled()
    store = bench.store
    begin, end = record_at(store, number)
    base = begin - begin % FILE
    good = contents(bench.files, base)
    held = store.log.view(begin, end - begin)
    flip(bench.files, begin + 200)
    bad = bytes(held)
    assert bad != good[begin - base : end - base]
    store.mend([Patch(begin, good[begin - base : end - base])])
    [kept] = evidence(bench.files, OWN)
    assert contents(bench.files, base) == good
    assert bytes(store.log.view(begin, end - begin)) == good[begin - base : end - base]
    assert bytes(held) == bad  # a view keeps the bytes that it had
    assert bench.files.read_file(kept) == bad
    assert all_bodies(bench) == BODIES
    # the log goes on in the file that was replaced
    bench.put(3)
    bench.settle()
    bench.crash()
    assert len(bench.bodies("T", 0)) == len(BODIES) // 2 + 3


def test_no_handle_and_no_draft_is_left() -> None:
    bench = filled()
    store, files = bench.store, bench.files
    begin, end = record_at(store, 2)
    good = bytes(store.log.view(begin, end - begin))
    store.log.mapped.release()
    opened = len(files._handles)
    for _ in range(3):
        store.mend([Patch(begin, good)])
        store.log.view(begin, end - begin)
        store.log.mapped.release()
    assert len(files._handles) == opened
    assert not [each for each in files.listdir(OWN) if each.endswith(".new")]


@pytest.mark.parametrize("buffered", [False, True])
def test_what_is_written_meanwhile_is_in_the_new_file(buffered: bool) -> None:
    bench = filled(buffered=buffered)
    store = bench.store
    begin, end = record_at(store, 18)
    base = begin - begin % FILE
    good = bytes(store.log.view(begin, end - begin))
    flip(bench.files, begin + 100)

    def put(_bytes: int) -> None:
        bench.put(1, size=50)
        store.flush()

    store.mend([Patch(begin, good)], pace=put)
    bench.settle()
    assert all_bodies_with(bench) == len(BODIES) + 2  # one for each piece that was copied
    assert bytes(store.log.view(begin, end - begin)) == good
    bench.crash()
    assert all_bodies_with(bench) == len(BODIES) + 2
    assert store.log.wrote.value > base


def all_bodies_with(bench: Bench) -> int:
    return len(bench.bodies("T", 0)) + len(bench.bodies("T", 1))


def test_a_cut_meanwhile_leaves_the_file_as_it_is() -> None:
    bench = filled()
    store = bench.store
    begin, end = record_at(store, 12)
    later, _ = record_at(store, 16)
    good = bytes(store.log.view(begin, end - begin))
    with pytest.raises(NotMendedError, match="cut or dropped"):
        store.mend([Patch(begin, good)], pace=lambda _bytes: store.truncate(later))
    assert bytes(store.log.view(begin, end - begin)) == good
    assert store.log.wrote.value == later


def test_bytes_of_a_log_that_was_cut_since_are_refused() -> None:
    bench = filled()
    store = bench.store
    begin, end = record_at(store, 18)
    patch = Patch(begin, bytes(store.log.view(begin, end - begin)), store.log.cuts)
    store.truncate(begin)
    bench.put(3, size=900)
    bench.settle()
    now = contents(bench.files, begin - begin % FILE)
    with pytest.raises(NotMendedError):
        store.mend([patch])
    assert contents(bench.files, begin - begin % FILE) == now


def test_an_unreadable_page_is_replaced_and_serves_again() -> None:
    bench = filled()
    store, files = bench.store, bench.files
    begin, end = record_at(store, 4)
    good = contents(files, 0)
    store.log.mapped.release()
    files.spoil(path_of(0), begin + 10, 20)
    with pytest.raises(UnreadableError):
        store.log.view(begin, end - begin)
    assert store.faults
    other, _ = record_at(store, 5)
    with pytest.raises(UnreadableError):  # the page that cannot be read is not in this patch
        store.mend([Patch(other, good[other : other + 100])])
    assert files.status(OWN / "mended.json") is None
    store.mend([Patch(begin, good[begin:end])])
    assert contents(files, 0) == good
    assert not store.faults
    assert all_bodies(bench) == BODIES
    [kept] = occupied(files, OWN)
    assert kept.name.startswith("bad-00000000000000000000-")
    assert good.startswith(files.read_file(kept)[:begin])
    with pytest.raises(OSError, match="Input/output error"):
        files.pread(files.open(kept, write=False), 30, begin + 5)
    bench.reopen()
    assert occupied(files, OWN) == [kept]


def test_the_first_message_of_a_queue_comes_back_to_readers() -> None:
    """They had asked where the queue begins while it was skipped."""
    bench = filled()
    begin, end = record_at(bench.store, 0)
    good = contents(bench.files, 0)[begin:end]
    flip(bench.files, begin + 200)
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "consumequeue/T/0"):
        bench.files.unlink(DIRECTORY / "consumequeue/T/0" / name)
    bench.files.unlink(OWN / "recovery.json")
    store = bench.open()
    bench.settle()
    dense = store.queue_table.get("T", 0)
    assert store.queues.min_offset(dense) == 1
    store.mend([Patch(begin, good)])
    bench.settle()
    assert store.queues.min_offset(dense) == 0
    assert all_bodies(bench) == BODIES


def test_the_newest_files_with_bad_places_are_kept() -> None:
    bench = filled()
    begin, end = record_at(bench.store, 4)
    good = contents(bench.files, 0)[begin:end]
    for _ in range(KEPT + 2):
        bench.files.spoil(path_of(0), begin + 10, 20)
        bench.store.mend([Patch(begin, good)])
    names = [each.name for each in occupied(bench.files, OWN)]
    assert len(set(names)) == KEPT
    assert names[-1] > names[0]


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM])
def test_a_bad_place_of_another_disk_or_without_second_names(number: int) -> None:
    """Beside the log in the first case. Without second names the file is mended all the same."""
    bench = filled()
    begin, end = record_at(bench.store, 4)
    good = contents(bench.files, 0)
    bench.files.spoil(path_of(0), begin + 10, 20)
    bench.files.fail("link", number, name="/tandemlog/")
    bench.store.mend([Patch(begin, good[begin:end])])
    assert contents(bench.files, 0) == good
    beside = DIRECTORY / "commitlog" / "spare"
    assert len(occupied(bench.files, beside)) == (number == errno.EXDEV)
    assert not occupied(bench.files, OWN)
    bench.reopen()
    assert len(occupied(bench.files, beside)) == (number == errno.EXDEV)
    assert all_bodies(bench) == BODIES


def test_what_dispatch_had_passed_over_comes_back() -> None:
    """Into the queue, into the index, and out of the list of damages."""
    bench = filled()
    begin, end = record_at(bench.store, 6)
    base = begin - begin % FILE
    good = contents(bench.files, base)
    flip(bench.files, begin + 200)
    bench.store.close()
    for folder in ("consumequeue/T/0", "index"):
        for name in bench.files.listdir(DIRECTORY / folder):
            bench.files.unlink(DIRECTORY / folder / name)
    bench.files.unlink(OWN / "recovery.json")
    store = bench.open()
    bench.settle()
    assert [each.start for each in store.damages] == [begin]
    assert BODIES[6] not in all_bodies(bench)
    assert not store.reader.query_key("T", "k6").records
    store.mend([Patch(begin, good[begin - base : end - base])])
    assert store.reput.behind
    bench.settle()
    assert not store.reput.behind
    assert not store.damages
    assert all_bodies(bench) == BODIES
    for number in range(len(BODIES)):
        assert len(store.reader.query_key("T", f"k{number}").records) == 1
    assert bench.files.status(OWN / "mended.json") is not None
    store.persist()
    assert bench.files.status(OWN / "mended.json") is None
    bench.crash()
    assert all_bodies(bench) == BODIES


def passed_over(number: int) -> tuple[MemoryFiles, Patch]:
    """A closed store whose queues lack that record, which is flipped; and the right bytes."""
    bench = filled()
    begin, end = record_at(bench.store, number)
    good = bytes(bench.store.log.view(begin, end - begin))
    flip(bench.files, begin + 200)
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "consumequeue/T/0"):
        bench.files.unlink(DIRECTORY / "consumequeue/T/0" / name)
    bench.files.unlink(OWN / "recovery.json")
    bench.open()
    bench.settle()
    assert BODIES[number] not in bench.bodies("T", 0)
    bench.store.close()
    return bench.files, Patch(begin, good)


def mortal(files: MemoryFiles) -> MortalFiles:
    """A copy of what is on the disk."""
    copy = MortalFiles()
    folders = [Path(each) for each in files._tree]
    for folder in folders:
        copy.make_directory(folder)
        for name in files.listdir(folder):
            if folder / name in folders:
                continue
            handle = copy.open(folder / name, create=True)
            copy.pwrite(handle, files.read_file(folder / name), 0)
            copy.fdatasync(handle)
            copy.close(handle)
    for folder in folders:
        copy.fsync_directory(folder)
    return copy


@pytest.mark.parametrize(("number", "lose_power"), [(6, False), (18, True)])
def test_a_crash_in_any_call_leaves_the_old_file_or_the_new_one(
    number: int, lose_power: bool
) -> None:
    base, patch = passed_over(number)
    start = patch.start - patch.start % FILE
    bad = contents(base, start)
    good = bytearray(bad)
    good[patch.start - start : patch.end - start] = patch.data
    for calls in range(MANY):
        bench = Bench(replace(CONFIG, property_crc=True), files := mortal(base))
        files.calls_left = calls
        try:
            bench.store.mend([patch])
            bench.settle()
            bench.store.persist()
        except DeathError:
            pass
        ended = not files.rest()
        if lose_power:
            bench.crash(Random(calls))
        else:
            bench.kill()
        bench.settle()
        found = contents(files, start)
        assert found in (good, bad)
        if found == good:
            assert all_bodies(bench) == BODIES
        assert "mending.new" not in files.listdir(OWN)
        bench.store.mend([patch])
        bench.settle()
        assert contents(files, start) == good
        assert all_bodies(bench) == BODIES
        bench.store.close()
        if ended:
            break
    assert 20 < calls < MANY - 1


@pytest.mark.parametrize("call", ["pwrite", "preallocate", "rename"])
def test_a_disk_that_refuses_changes_nothing(call: str) -> None:
    bench = filled()
    store, files = bench.store, bench.files
    begin, end = record_at(store, 6)
    good = bytes(store.log.view(begin, end - begin))
    files.fail(call, errno.EIO, name="mending.new")
    with pytest.raises(StoreReadOnlyError):
        store.mend([Patch(begin, good)])
    files.heal()
    assert store.failure is None
    assert files.status(OWN / "mended.json") is None
    bench.put(1)
    bench.settle()


def test_a_name_that_is_not_durable_stops_the_store() -> None:
    bench = filled()
    begin, end = record_at(bench.store, 6)
    good = bytes(bench.store.log.view(begin, end - begin))
    bench.files.fail("fsync_directory", errno.EIO, name="commitlog")
    with pytest.raises(FlushFailedError, match="name"):
        bench.store.mend([Patch(begin, good)])
    assert isinstance(bench.store.failure, FlushFailedError)


def test_the_newest_evidence_is_kept() -> None:
    bench = filled()
    begin, end = record_at(bench.store, 6)
    good = bytes(bench.store.log.view(begin, end - begin))
    for _ in range(EVIDENCE_KEPT + 3):
        bench.clock.advance(1)
        flip(bench.files, begin + 200)
        bench.store.mend([Patch(begin, good)])
        bench.clock.advance(1)
        bench.store.mend([Patch(begin, good)])
    assert len(evidence(bench.files, OWN)) == EVIDENCE_KEPT
    newest = f"damaged-{begin}-{bench.clock.now_ms()}"
    assert evidence(bench.files, OWN)[-1].name == newest


def test_a_mending_that_is_tried_again_keeps_its_evidence_once() -> None:
    bench = filled()
    begin, end = record_at(bench.store, 6)
    good = bytes(bench.store.log.view(begin, end - begin))
    flip(bench.files, begin + 200)
    for _ in range(3):
        bench.clock.advance(1)
        bench.files.fail("rename", errno.EIO, name="mending.new")
        with pytest.raises(StoreReadOnlyError):
            bench.store.mend([Patch(begin, good)])
        bench.files.heal()
    assert len(evidence(bench.files, OWN)) == 1


def test_bytes_that_are_barred_are_not_served() -> None:
    bench = filled()
    store = bench.store
    begin, end = record_at(store, 6)
    store.log.bar(begin, end)
    with pytest.raises(UnreadableError, match="differ"):
        store.log.view(begin + 5, 10)
    with pytest.raises(UnreadableError):
        store.reader.get("T", 0, 3, 1, 4096)
    assert bytes(store.log.read(0, 1 << 20)) == bytes(store.log.view(0, begin))
    assert len(store.reader.get("T", 0, 0, 3, 1 << 20).sizes) == 3
    store.log.unbar(begin, end)
    assert len(store.reader.get("T", 0, 3, 1, 4096).sizes) == 1
