"""A disk that does not give some bytes of a file: what can be read is read, and nothing is cut."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench, records_of
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import CorruptStoreError, StoreBusyError, UnreadableError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.verify import verify

LOG = DIRECTORY / "commitlog" / "00000000000000000000"
QUEUE = DIRECTORY / "consumequeue" / "T" / "0" / "00000000000000000000"


def spoil(bench: Bench, position: int) -> None:
    """A byte of the log goes bad, and what was known to be in memory is not relied on any more."""
    bench.files.spoil(LOG, position, 1)
    bench.store.log.files[0].release()


def test_a_pull_gives_what_lies_before_it() -> None:
    bench = Bench()
    bench.put(40)
    bench.settle()
    bodies = bench.bodies()
    bad = bench.store.queues.read(0, 20, 1)["physical_offset"][0]
    spoil(bench, int(bad) + 50)
    with pytest.raises(UnreadableError, match=str(LOG)):
        bench.bodies()
    found: list[bytes] = []
    while len(found) < 20:
        result = bench.store.reader.get("T", 0, len(found), 0, 4096)
        found += [record.body for record in records_of(result)]
    assert found == bodies[:20]
    result = bench.store.reader.get("T", 0, 21, 0, 4096)
    assert [record.body for record in records_of(result)] == bodies[21:]
    with pytest.raises(UnreadableError):
        bench.store.reader.record_at(int(bad))
    bench.put(1)
    bench.settle()
    bench.files.heal()
    assert bench.bodies()[:40] == bodies


def test_dispatch_waits_for_it() -> None:
    bench = Bench()
    bench.put(3)
    bench.settle()
    bad = bench.put(3).segments[0].physical_offset
    spoil(bench, bad + 100)
    with pytest.raises(UnreadableError):
        bench.settle()
    assert bench.store.failure is None
    assert len(bench.bodies()) == 3
    bench.files.heal()
    bench.settle()
    assert len(bench.bodies()) == 6


@pytest.mark.parametrize("known", [True, False])
def test_recovery_cuts_nothing_for_it(known: bool) -> None:
    """Where it has to look at those bytes at all."""
    bench = Bench()
    bench.put(30)
    bench.settle()
    bodies = bench.bodies()
    bench.files.spoil(LOG, 3_000, 1)
    bench.store.close()
    if not known:
        bench.files.unlink(StorePaths(DIRECTORY).recovery_point)  # all of the log is looked at then
        with pytest.raises(UnreadableError, match="copy the store again from another node"):
            bench.open()
        bench.files.heal()
    bench.open()
    assert bench.store.recovery.damages == []
    bench.files.heal()
    assert bench.bodies() == bodies


def test_a_queue_is_made_again_from_the_log() -> None:
    bench = Bench()
    bench.put(30)
    bench.settle()
    bodies = bench.bodies()
    bench.store.persist()
    bench.reopen()
    bench.files.spoil(QUEUE, 100, 1)
    with pytest.raises(StoreBusyError, match="cannot be read"):
        bench.store.reader.get("T", 0, 5, 0, 4096)
    bench.store.reput.run_to()
    assert bench.bodies() == bodies


def test_an_index_that_cannot_be_read_is_told() -> None:
    bench = Bench()
    bench.put_marked(ProducerMark("p", 0, 0, 0, 3), 3)
    bench.settle()
    query = bench.store.reader.query_key
    assert len(query("T", "a", tags=True).records) == 2
    [name] = bench.files.listdir(DIRECTORY / "index")
    bench.files.spoil(DIRECTORY / "index" / name, 0, 4096)
    with pytest.raises(CorruptStoreError, match="rebuild the index"):
        query("T", "a", tags=True)
    assert len(bench.bodies()) == 3
    bench.store.close()
    assert "cannot be read" in str(verify(bench.config, bench.files).faults[0])


def test_a_node_outlives_a_log_file_that_was_cut_short(tmp_path: Path) -> None:
    """On a real disk, where touching such a page ends the process."""
    config = replace(CONFIG, directory=tmp_path, commit_log_file_size=1 << 16)
    store = MessageStore.open(config)
    store.topics.create(TopicConfig("T", 1, 1), 0)
    for number in range(40):
        store.put(batch_of([Put("T", 0, b"%d" % number + b"." * 1000)]))
    store.flush()
    store.reput.run_to()
    [log] = (tmp_path / "commitlog").iterdir()
    os.truncate(log, 16_384)
    found = 0
    while found < 14:
        found += store.reader.get("T", 0, found, 0, 1 << 20).count
    with pytest.raises(UnreadableError, match=r"16384\.\."):
        store.reader.get("T", 0, 14, 0, 1 << 20)
    with pytest.raises(UnreadableError):
        store.log.read(0, 1 << 16)
    store.log.files[0].release()
    with pytest.raises(UnreadableError, match="the file has 16384 of 65536 bytes"):
        store.reader.get("T", 0, 0, 0, 1 << 20)
    store.close()


def test_the_tools_name_it() -> None:
    bench = Bench()
    bench.put(30)
    bench.settle()
    bench.store.close()
    bench.files.spoil(LOG, 3_000, 1)
    report = verify(bench.config, bench.files)
    assert [fault.file for fault in report.faults] == [str(LOG)]
    assert "cannot be read" in report.faults[0].reason
    assert "cannot be read" in compare(bench.config, bench.config, bench.files).faults[0].reason
    with pytest.raises(UnreadableError):
        list(dump(bench.config, "messages", bench.files))
