"""Put a RocketMQ store's records to a new log, one by one: the same bytes must come out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.clock import FakeClock
from helpers import golden
from tandemlog.format.constants import MULTI_QUEUE_OFFSET
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.record import Record, decode_record, is_blank
from tandemlog.format.record.sys_flag import INNER_BATCH
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.mapped_file_queue import MappedFileQueue
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.queues.queue_table import QueueTable

pytestmark = pytest.mark.golden

# Written by the master alone; the others hold records of several masters.
STORES = [each for each in golden.stores() if each.node == "store"]

MASTERS_FIELDS = ((20, 16), (56, 16))  # offsets; store time and host


def as_sent(data: bytes, record: Record) -> RecordBatch:
    """The record as a client frames it."""
    sent = bytearray(data)
    for start, size in MASTERS_FIELDS:
        sent[start : start + size] = bytes(size)
    return RecordBatch(
        records=sent,
        sizes=np.array([len(sent)], np.uint32),
        queue_indexes=np.zeros(1, np.uint16),
        topics=(record.topic,),
        queue_topics=np.zeros(1, np.uint32),
        queue_ids=np.array([record.queue_id], np.uint32),
    )


@pytest.mark.parametrize("store", STORES, ids=lambda each: each.label)
def test_the_same_puts_make_the_same_log(store: golden.Golden, tmp_path: Path) -> None:
    root = store.copy(tmp_path).store
    theirs = MappedFileQueue(RealFileSystem(), root / "commitlog", 1 << 20, read_only=True)
    table = QueueTable()
    ours: CommitLog | None = None
    appended = 0
    for file in theirs.files:
        data = file.view(0, file.size)
        position = 0
        while any(data[position : position + 8]) and not is_blank(data, position):
            record = decode_record(data, position)
            if record.physical_offset != file.base + position:
                break  # bytes of a life before a recovery
            if ours is None:
                config = StoreConfig(
                    directory=Path("/ours"),
                    commit_log_file_size=theirs.file_size,
                    store_host=record.store_host,
                )
                ours = CommitLog(config, MemoryFiles(), FakeClock())
                ours.limits = replace(ours.limits, services=True)
                ours.reset(file.base)
            table.register(record.topic, record.queue_id, record.queue_offset)
            stored = bytes(data[position : position + record.size])
            position += record.size
            appended += 1
            if record.sys_flag & INNER_BATCH or MULTI_QUEUE_OFFSET in record.properties:
                ours.append_raw(record.physical_offset, stored)  # a node takes none from a client
                continue
            batch = as_sent(stored, record)
            dense = table.dense(batch.topics, batch.queue_topics, batch.queue_ids)
            skip_what_a_batch_left_over(ours, theirs, record)
            (segment,) = ours.append(
                ours.check(batch), dense, table.next_queue_offsets, record.store_timestamp
            )
            assert segment.physical_offset == record.physical_offset
            assert segment.queue_offsets.tolist() == [record.queue_offset]
    assert ours is not None
    assert appended > 50
    end = ours.wrote.value
    for file in ours.files:
        size = min(file.size, end - file.base)
        assert bytes(file.view(0, size)) == bytes(theirs.view(file.base, size))


def skip_what_a_batch_left_over(ours: CommitLog, theirs: MappedFileQueue, record: Record) -> None:
    """RocketMQ moves a whole batch to the next file, even if its first messages would fit."""
    wrote, offset = ours.wrote.value, record.physical_offset
    left = ours.file_size - wrote % ours.file_size
    if offset == wrote + left and record.size + 8 <= left:
        ours.append_raw(wrote, bytes(theirs.view(wrote, left)))
