from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from tandemlog_server.storage.config import ConfirmSource, StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.tools.compare_stores import CompareReport, compare


def config_of(directory: Path) -> StoreConfig:
    return replace(CONFIG, directory=directory)


def opened(config: StoreConfig) -> MessageStore:
    return MessageStore.open(config, files=RealFileSystem())


@pytest.fixture
def twins(tmp_path: Path) -> tuple[StoreConfig, StoreConfig]:
    """A master's store and a replica of it that has confirmed all but the last batch."""
    one, two = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    master = opened(one)
    master.topics.create(TopicConfig("T", 4, 4), 1)
    for number in range(12):
        puts = [
            Put("T", each % 4, b"%d" % number * 20, b"KEYS\x01k%d\x02TAGS\x01a\x02" % each)
            for each in range(12)
        ]
        master.put(batch_of(puts))
        if number == 10:
            confirmed = master.log.wrote.value
    slave = opened(replace(two, confirm=ConfirmSource.REPLICATION))
    position = 0
    while position < master.log.wrote.value:
        piece = bytes(master.log.read(position, 4096))
        slave.append_raw(position, piece)
        position += len(piece)
    slave.flush()
    slave.advance_confirmed(confirmed)
    slave.close()
    master.close()
    return one, two


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def fault(report: CompareReport) -> str:
    assert not report.holds
    return str(report.faults[0])


def test_replicas_are_equal_up_to_the_shared_confirm_offset(
    twins: tuple[StoreConfig, StoreConfig],
) -> None:
    report = compare(*twins)
    assert report.faults == []
    assert report.start == 0
    assert report.end < 12 * 12 * 200
    assert report.units == 11 * 12
    assert report.index_entries == 11 * 12 * 2
    assert compare(twins[1], twins[0]).holds


def test_what_lies_beyond_it_does_not_matter(twins: tuple[StoreConfig, StoreConfig]) -> None:
    report = compare(*twins)
    name = f"{report.end - report.end % 8192:020d}"
    flip(twins[0].directory / "commitlog" / name, report.end % 8192 + 30)
    assert compare(*twins).end == report.end
    assert compare(*twins).holds


def test_a_different_byte_of_the_log_is_named(twins: tuple[StoreConfig, StoreConfig]) -> None:
    flip(twins[1].directory / "commitlog" / f"{8192:020d}", 100)
    message = fault(compare(*twins))
    assert "offset 8292: byte 0x" in message
    assert str(twins[1].directory) in message


def test_a_different_unit_is_named(twins: tuple[StoreConfig, StoreConfig]) -> None:
    flip(twins[1].directory / "consumequeue" / "T" / "2" / f"{0:020d}", 20 * 5 + 19)
    assert "queue T/2: unit 5 is not that of" in fault(compare(*twins))


def test_a_missing_queue_is_named(twins: tuple[StoreConfig, StoreConfig]) -> None:
    for file in (twins[1].directory / "consumequeue" / "T" / "2").iterdir():
        file.unlink()
    assert "no such queue" in fault(compare(*twins))
    assert "unit 0 is not in" in fault(compare(twins[1], twins[0]))


def test_a_different_index_is_named(twins: tuple[StoreConfig, StoreConfig]) -> None:
    path = next((twins[1].directory / "index").iterdir())
    flip(path, 40 + 4 * 16 + 20 * 3 + 3)
    assert "there is no entry with hash" in fault(compare(*twins))


def test_stores_that_share_nothing_say_so(
    twins: tuple[StoreConfig, StoreConfig], tmp_path: Path
) -> None:
    report = compare(twins[0], config_of(tmp_path / "none"))
    assert report.holds
    assert "nothing to compare" in report.notes[0]


def test_a_store_equals_itself() -> None:
    bench = Bench()
    bench.put(20)
    bench.store.close()
    assert compare(bench.config, bench.config, bench.files).holds
