"""A log file that is gone, or that nobody may read: named, and tried again until it is back."""

import errno

import pytest

from fakes.stores import Bench
from tandemlog_server.storage.errors import UnreadableError
from tandemlog_server.storage.housekeeping import release_maps


def test_a_file_that_is_gone_is_named_until_it_is_back() -> None:
    bench = Bench()
    for _ in range(30):
        bench.put(10, size=50)
    bench.settle()
    log = bench.store.log
    first = log.files[0]
    release_maps(log)
    first.release()
    first._map = None
    bench.files.fail("open", errno.ENOENT, name=first.path.name)
    with pytest.raises(UnreadableError, match="No such file"):
        bench.store.reader.get("T", 0, 0, 8, 4096)
    (fault,) = bench.store.faults
    assert str(first.path) in fault
    assert "copy the store again from another node" in fault
    log.retry_unreadable()
    assert len(bench.store.faults) == 1
    bench.files.heal()
    log.retry_unreadable()
    assert bench.store.faults == []
    assert bench.store.reader.get("T", 0, 0, 8, 4096).count == 8


def test_a_file_that_retention_has_dropped_is_not_missed() -> None:
    bench = Bench()
    for _ in range(30):
        bench.put(10, size=50)
    bench.settle()
    log = bench.store.log
    first = log.files[0]
    release_maps(log)
    bench.files.spoil(first.path, 0, 100)
    with pytest.raises(UnreadableError):
        bench.store.reader.get("T", 0, 0, 8, 4096)
    assert len(bench.store.faults) == 1
    log.drop_before(first.end)
    log.retry_unreadable()
    assert bench.store.faults == []
