"""The checksum of a stretch of log, over file ends and no further than there is a log."""

import zlib

import pytest

from fakes.fake_store import FakeDisk, FakeStore
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.protocol.log_crc import log_crc


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def store(disk: FakeDisk) -> FakeStore:
    store = FakeStore(disk)
    store.become_master(1)
    for number in range(100):
        store.append(b"%d" % number * 50)
    return store


def test_it_is_that_of_the_bytes(disk: FakeDisk, store: FakeStore) -> None:
    end = store.log.committed.value
    assert end > store.log.file_size
    data = bytes(disk.data)
    assert len(data) == end
    assert log_crc(store, 0, end) == zlib.crc32(data)
    assert log_crc(store, 100, 100) == 0
    assert log_crc(store, 100, end - 7) == zlib.crc32(data[100:-7])


def test_a_log_that_ends_before_is_an_error(store: FakeStore) -> None:
    end = store.log.committed.value
    with pytest.raises(HaError, match=f"the log ends at {end}"):
        log_crc(store, 0, end + 1)
