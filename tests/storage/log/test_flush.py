"""When bytes go to disk, and the threads that see to it."""

import errno
import threading
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from fakes.small_log import append
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import FlushFailedError
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.log.flush import FlushService, flush_due
from tandemlog_server.storage.queues.queue_table import QueueTable

PATIENCE_S = 20.0  # never reached by a test that passes
OVERHEAD = len(Put(body=b"").record())


class Rig:
    """A log on a disk in memory, its flush service, and a clock that a test moves."""

    def __init__(self, **settings: object) -> None:
        self.files = MemoryFiles()
        self.clock = FakeClock()
        chosen = {
            "commit_log_file_size": 1 << 20,
            "flush_interval_ms": 3_600_000,  # the threads act only when woken
            "commit_interval_ms": 3_600_000,
            **settings,
        }
        config = StoreConfig(directory=Path("/store"), **chosen)  # type: ignore[arg-type]
        self.log = CommitLog(config, self.files, self.clock)
        self.service = FlushService(self.log, config, self.clock)
        self.table = QueueTable()

    def put(self, size: int = 200) -> int:
        batch = batch_of([Put(body=bytes(size - OVERHEAD))])
        append(self.log, self.table, batch, 1)
        return self.log.wrote.value

    @property
    def syncs(self) -> int:
        return self.files.calls["fdatasync"]


@pytest.mark.parametrize(
    ("start", "end", "since_ms", "due"),
    [
        (0, 0, 1e9, False),
        (0, 1, 9_999, False),
        (0, 1, 10_000, True),
        (0, 4 * 4096 - 1, 0, False),
        (0, 4 * 4096, 0, True),
        (4095, 4 * 4096, 0, True),
        (4096, 4 * 4096, 0, False),
    ],
)
def test_least_pages_or_long_ago(start: int, end: int, since_ms: float, due: bool) -> None:
    found = flush_due(start, end, least_pages=4, since_last_ms=since_ms, thorough_ms=10_000)
    assert found is due


def test_async_waits_for_pages_or_time() -> None:
    rig = Rig()
    assert not rig.service.run_once()
    rig.put()
    assert not rig.service.run_once()
    rig.clock.advance(10)
    assert rig.service.run_once()
    assert rig.log.flushed.value == rig.log.wrote.value
    rig.put(4 * 4096)
    assert rig.service.run_once()
    rig.put()
    assert not rig.service.run_once()
    assert rig.service.run_once(forced=True)
    assert not rig.service.run_once(forced=True)


def test_async_flushes_a_full_file_and_a_dirty_log_at_once() -> None:
    rig = Rig(commit_log_file_size=4096, flush_least_pages=1000)
    for _ in range(3):
        rig.put(1500)
    assert rig.service.run_once()
    urgent = Rig(max_dirty_bytes=4000, flush_least_pages=1000)
    urgent.put(900)
    assert not urgent.service.run_once()
    urgent.put(150)
    assert urgent.service.run_once()


def test_sync_flushes_whatever_there_is() -> None:
    rig = Rig(flush=FlushMode.SYNC)
    rig.put()
    assert rig.service.run_once()


def test_one_fdatasync_serves_all_that_wait() -> None:
    rig = Rig(flush=FlushMode.SYNC)
    first = rig.put()
    rig.log.flush()
    entered, leave = threading.Event(), threading.Event()
    real = rig.files.fdatasync

    def slow(handle: int) -> None:
        entered.set()
        assert leave.wait(PATIENCE_S)
        real(handle)

    rig.files.fdatasync = slow  # type: ignore[method-assign]
    before = rig.syncs
    rig.service.start()
    second = rig.put()
    assert entered.wait(PATIENCE_S)
    ends = [rig.put() for _ in range(50)]  # while the first fdatasync runs
    assert rig.log.flushed.value == first
    leave.set()
    assert rig.log.flushed.wait(second, PATIENCE_S)
    assert rig.log.flushed.wait(ends[-1], PATIENCE_S)
    assert rig.syncs == before + 2
    rig.service.close()


def test_a_dirty_log_wakes_the_async_thread() -> None:
    rig = Rig(max_dirty_bytes=4000)
    rig.service.start()
    end = rig.put(1200)
    assert rig.log.flushed.wait(end, PATIENCE_S)
    rig.service.close()


def test_waking_by_hand() -> None:
    rig = Rig()
    rig.service.start()
    end = rig.put()
    rig.service.wake()
    assert rig.log.flushed.wait(end, PATIENCE_S)
    rig.service.close()


def test_buffered_commits_by_pages_or_time() -> None:
    rig = Rig(buffered=True)
    rig.put()
    assert not rig.service.commit_once()
    rig.clock.advance(0.2)
    assert rig.service.commit_once()
    assert rig.log.committed.value == rig.log.wrote.value
    rig.put(4 * 4096 + 4096)
    assert rig.service.commit_once()
    assert not rig.service.commit_once()


def test_buffered_and_sync_together() -> None:
    rig = Rig(buffered=True, flush=FlushMode.SYNC)
    rig.service.start()
    for _ in range(20):
        end = rig.put()
        assert rig.log.flushed.wait(end, PATIENCE_S)
        assert rig.log.committed.value >= end
    rig.service.close()


def test_a_failed_fsync_reaches_every_waiter_and_ends_the_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(flush=FlushMode.SYNC)
    rig.files.fail("fdatasync", errno.EIO, name="commitlog")
    outcomes: list[object] = []

    def wait(end: int) -> None:
        try:
            outcomes.append(rig.log.flushed.wait(end, PATIENCE_S))
        except FlushFailedError as error:
            outcomes.append(error)

    waiters = [threading.Thread(target=wait, args=(number * 200,)) for number in (1, 2, 3)]
    for waiter in waiters:
        waiter.start()
    rig.put()
    rig.service.start()
    rig.service.wake()
    for waiter in waiters:
        waiter.join()
    assert [type(each) for each in outcomes] == [FlushFailedError] * 3
    rig.service.close()
    assert "the log accepts no more writes" in caplog.text
    with pytest.raises(FlushFailedError):
        rig.put()


def test_a_fault_of_our_own_is_no_silent_end(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(flush=FlushMode.SYNC)

    def broken(start: int, end: int) -> None:
        raise ZeroDivisionError("oops")

    rig.log.mapped.sync = broken  # type: ignore[method-assign]
    rig.service.start()
    end = rig.put()
    with pytest.raises(FlushFailedError, match="oops"):
        rig.log.flushed.wait(end, PATIENCE_S)
    rig.service.close()
    assert "log-flush ends" in caplog.text


def test_closing_flushes_what_is_left() -> None:
    rig = Rig(buffered=True)
    rig.service.start()
    end = rig.put()
    rig.service.close()
    assert rig.log.flushed.value == end
    rig.files.crash()
    assert any(rig.files.read_file(Path("/store/commitlog/00000000000000000000")))


def test_closing_says_where_that_fails() -> None:
    rig = Rig()
    rig.put()
    rig.files.fail("fdatasync", errno.EIO)
    with pytest.raises(FlushFailedError):
        rig.service.close()


def test_a_slow_disk_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.put()
    real = rig.files.fdatasync

    def slow(handle: int) -> None:
        rig.clock.advance(2.5)
        real(handle)

    rig.files.fdatasync = slow  # type: ignore[method-assign]
    rig.service.flush()
    assert "slow flush: bytes=200 seconds=2.5" in caplog.text
