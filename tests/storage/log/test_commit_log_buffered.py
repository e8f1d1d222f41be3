"""The buffered mode: appended to memory, committed in fewer writes, and then as the direct one."""

import errno
import random

import pytest

from fakes.batches import Put
from fakes.small_log import FILE_SIZE, SIZE, Log, positions, sized
from tandemlog.format.columns.walk import walk
from tandemlog_server.storage.errors import (
    FlushFailedError,
    OffsetOutOfRangeError,
)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def buffered() -> Log:
    return Log(buffered=True)


def test_readers_see_only_what_was_committed(buffered: Log) -> None:
    buffered.put(sized(1000))
    assert positions(buffered.log) == (1000, 0, 0)
    assert bytes(buffered.log.read(0, 100)) == b""
    with pytest.raises(OffsetOutOfRangeError):
        buffered.log.view(0, 10)
    assert buffered.log.commit() == 1000
    assert positions(buffered.log) == (1000, 1000, 0)
    assert len(buffered.records()) == 1


def test_a_flush_drives_the_commit(buffered: Log) -> None:
    buffered.put(*[sized(3000)] * 3)
    assert buffered.log.flush() == 2 * FILE_SIZE + 3000
    assert len(buffered.records()) == 3
    buffered.files.crash()
    assert walk(buffered.again().log.read(2 * FILE_SIZE, FILE_SIZE)).count == 1


def test_buffered_and_direct_logs_are_the_same_bytes(buffered: Log, log: Log) -> None:
    rng = random.Random(3)
    for number in range(60):
        puts = [sized(rng.randint(140, 900)) for _ in range(rng.randint(1, 4))]
        log.put(*puts)
        buffered.put(*puts)
        if number % 7 == 0:
            buffered.log.commit()
    buffered.log.flush()
    assert buffered.content() == log.content()


def test_many_small_appends_become_few_writes(buffered: Log) -> None:
    for _ in range(20):
        buffered.put(Put())
    before = buffered.files.calls["pwrite"]
    buffered.log.commit()
    assert buffered.files.calls["pwrite"] == before + 1


def test_a_failed_commit_ends_writing(buffered: Log) -> None:
    buffered.put(Put())
    buffered.files.fail("pwrite", errno.EIO, times=1)
    with pytest.raises(FlushFailedError, match="write of the log failed"):
        buffered.log.commit()
    with pytest.raises(FlushFailedError):
        buffered.put(Put())


def test_cutting_and_resetting_what_is_still_in_memory(buffered: Log) -> None:
    buffered.put(Put(), Put(), Put())
    buffered.log.truncate(SIZE)
    assert positions(buffered.log) == (SIZE, SIZE, 0)
    assert len(buffered.records()) == 1
    buffered.put(Put())
    buffered.log.reset(0)
    assert positions(buffered.log) == (0, 0, 0)
    assert buffered.log.commit() == 0
    buffered.put(Put())
    buffered.log.flush()
    assert len(buffered.records()) == 1
