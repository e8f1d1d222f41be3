"""The log loses its end, its beginning, or all of it; what is gone stays gone."""

import pytest

from fakes.batches import Put
from fakes.small_log import FILE_SIZE, ROOT, SIZE, Log, positions, sized
from tandemlog.format.columns.walk import walk
from tandemlog_server.storage.errors import (
    OffsetOutOfRangeError,
    StoreLayoutError,
)


@pytest.fixture
def log() -> Log:
    return Log()


# -- truncation


@pytest.mark.parametrize("cut", [0, SIZE, 3 * SIZE])
def test_a_cut_is_durable_and_leaves_nothing_to_find(log: Log, cut: int) -> None:
    log.put(*[Put()] * 5, sized(3900), sized(3900))
    log.log.flush()
    deleted = log.log.truncate(cut)
    assert [path.name for path in deleted] == ["00000000000000008192", "00000000000000004096"]
    assert positions(log.log) == (cut, cut, cut)
    log.files.crash()
    after = log.again()
    content = after.content()
    assert len(content) == FILE_SIZE
    assert not any(content[cut:])
    assert walk(content).end == cut


def test_old_records_do_not_come_back_behind_new_ones(log: Log) -> None:
    log.put(*[Put()] * 5)
    log.log.flush()
    log.log.truncate(SIZE)
    log.put(Put(body=b"newer"))  # just as long: it ends where an old one began
    log.log.flush()
    log.files.crash()
    assert walk(log.again().content()).count == 2


def test_a_cut_keeps_what_was_not_flushed_before_it(log: Log) -> None:
    log.put(Put(), Put())
    log.log.truncate(SIZE)
    assert positions(log.log) == (SIZE, SIZE, 0)
    log.log.flush()
    assert log.log.flushed.value == SIZE


def test_the_first_cut_after_a_kill_makes_the_rest_durable(log: Log) -> None:
    log.put(sized(3000), sized(3000), Put())
    log.files.kill()
    after = log.again()
    after.log.truncate(4096 + 3000)
    log.files.crash()
    assert walk(log.again().log.read(0, FILE_SIZE)).count == 1
    assert walk(log.again().log.read(4096, FILE_SIZE)).count == 1


def test_a_cut_outside_the_log_is_refused(log: Log) -> None:
    log.put(*[sized(3000)] * 3)
    log.log.flush()
    log.log.drop_before(4096)
    for offset in (0, 4095, 8192 + 3001):
        with pytest.raises(OffsetOutOfRangeError):
            log.log.truncate(offset)


def test_what_is_written_where_the_log_was_cut_is_not_barred(log: Log) -> None:
    """What was wrong there is gone with the old end."""
    log.put(*[Put()] * 5)
    log.log.bar(0, SIZE)
    log.log.bar(2 * SIZE, 5 * SIZE)
    log.log.truncate(3 * SIZE)
    assert log.log.barred == ((0, SIZE), (2 * SIZE, 3 * SIZE))
    log.log.reset(FILE_SIZE)
    assert not log.log.barred


def test_what_is_right_is_not_barred_whatever_the_bounds_were(log: Log) -> None:
    log.put(*[Put()] * 5)
    log.log.bar(SIZE, 4 * SIZE)
    log.log.unbar(2 * SIZE, 3 * SIZE)
    assert log.log.barred == ((SIZE, 2 * SIZE), (3 * SIZE, 4 * SIZE))
    log.log.bar(0, 2 * SIZE)
    assert log.log.barred == ((3 * SIZE, 4 * SIZE), (0, 2 * SIZE))
    log.log.unbar(0, 5 * SIZE)
    assert not log.log.barred


def test_a_cut_at_the_end_of_a_file(log: Log) -> None:
    log.put(*[sized(3000)] * 2)
    log.log.truncate(FILE_SIZE)
    assert len(log.log.files) == 2
    log.log.append_raw(FILE_SIZE, b"next")
    assert bytes(log.log.read(FILE_SIZE, 10)) == b"next"


# -- reset and deletion


def test_a_reset_begins_anew_and_keeps_the_old_files_aside(log: Log) -> None:
    log.put(*[sized(3000)] * 2)
    log.log.flush()
    log.log.reset(3 * FILE_SIZE, move_to=ROOT / "resync-1" / "commitlog")
    assert positions(log.log) == (3 * FILE_SIZE,) * 3
    assert log.log.min_offset == 3 * FILE_SIZE
    assert len(log.files.listdir(ROOT / "resync-1" / "commitlog")) == 2
    log.log.append_raw(3 * FILE_SIZE, b"new")
    assert log.files.listdir(ROOT / "commitlog") == ["00000000000000012288"]
    with pytest.raises(StoreLayoutError, match="not a multiple"):
        log.log.reset(100)
    assert log.log.wrote.value == 3 * FILE_SIZE + 3


def test_a_reset_may_bring_another_file_size(log: Log) -> None:
    log.put(Put())
    log.log.reset(16384, file_size=8192)
    assert log.log.file_size == 8192
    log.log.append_raw(16384, bytes(8192))
    status = log.files.status(ROOT / "commitlog" / "00000000000000016384")
    assert status is not None
    assert status.size == 8192


def test_files_go_from_the_front_but_only_flushed_ones(log: Log) -> None:
    log.put(*[sized(3000)] * 4)
    assert log.log.drop_before(4 * FILE_SIZE) == []
    log.log.flush()
    assert len(log.log.drop_before(2 * FILE_SIZE)) == 2
    assert log.log.min_offset == 2 * FILE_SIZE
    assert len(log.log.drop_before(100 * FILE_SIZE)) == 1
    assert log.log.min_offset == 3 * FILE_SIZE
