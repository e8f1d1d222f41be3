"""A stored log with 1 KiB messages into a backup in a folder, and a node's folder from it again.

What is restored is a log of 2 GiB in files of 1 GiB, with queues and index, all of it durable. The
reference is a plain copy of the same bytes on the same disk, to know what the disk does now.
"""

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.figures import Figure
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.backup import backup
from tandemlog.archive.folder_store import FolderStore
from tandemlog.archive.restore_point import Until
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import TopicFrame, frame_message
from tandemlog_server.cli.shared.archived_log import archived_log
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.tools.restore_archive import restore_archive
from tandemlog_server.storage.tools.stored_log import StoredLog

LOG_BYTES = 2 << 30
BODY_BYTES = 1024
RECORDS = 1000
TOPIC, QUEUES = "bench-restore", 8
WRITERS = 2


def requests(count: int) -> list[RecordBatch]:
    chooser = random.Random(1)
    frame = TopicFrame(TOPIC, "127.0.0.1:0")
    made = []
    for number in range(count):
        framed = [
            frame_message(
                frame,
                chooser.randbytes(BODY_BYTES),
                encode_properties(
                    {"UNIQ_KEY": f"7F0000010000{number:08X}{record:012X}", "TAGS": "a"}
                ),
                record % QUEUES,
                1_700_000_000_000,
            )
            for record in range(RECORDS)
        ]
        made.append(
            RecordBatch(
                records=b"".join(framed),
                sizes=np.array([len(each) for each in framed], np.uint32),
                queue_indexes=np.arange(RECORDS, dtype=np.uint16) % QUEUES,
                topics=(TOPIC,),
                queue_topics=np.zeros(QUEUES, np.uint32),
                queue_ids=np.arange(QUEUES, dtype=np.uint32),
            )
        )
    return made


def fill(folder: Path, log_bytes: int = LOG_BYTES) -> int:
    """A closed store with a log of at least that many bytes; returns how many."""
    store = MessageStore.open(StoreConfig(folder))
    try:
        store.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES), 0)
        store.become_master(1)
        store.start()
        made = requests(16)
        number = 0
        while store.log.wrote.value < log_bytes:
            store.put(made[number % len(made)])
            number += 1
        return store.log.wrote.value
    finally:
        store.close()


def copy_seconds(source: Path, target: Path) -> float:
    """A copy of the folder's files, each durable."""
    began = time.perf_counter()
    target.mkdir()
    for path in sorted(source.iterdir()):
        with path.open("rb") as read, (target / path.name).open("wb") as written:
            shutil.copyfileobj(read, written, 1 << 20)
            written.flush()
            os.fdatasync(written.fileno())
    return time.perf_counter() - began


def run(folder: Path) -> list[Figure]:
    source, url = folder / "store", folder / "backup"
    size = fill(source)
    objects = FolderStore(url)
    log = StoredLog(StoreConfig(source))
    try:
        began = time.perf_counter()
        backup(objects, log, now_ms=1)
        backup_s = time.perf_counter() - began
    finally:
        log.close()
    shutil.rmtree(source)
    copy_s = copy_seconds(url / "log", folder / "copy")
    shutil.rmtree(folder / "copy")
    began, cpu = time.perf_counter(), time.process_time()
    found = archived_log(ArchiveReader.open(objects), Until())
    restore_archive(found.log, StoreConfig(folder / "restored"), writers=WRITERS)
    restore_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return [
        Figure(
            "restore of a log with 1 KiB messages, from a folder",
            size / restore_s / 1e6,
            "MB/s",
            300,
        ),
        Figure(
            "of it, beside a plain copy of its objects, each durable",
            size / restore_s / 1e6,
            "MB/s",
            0.5,
            size / copy_s / 1e6,
        ),
        Figure("restore, by processor time", size / cpu_s / 1e6, "MB/s", 300),
        Figure("backup of it into a folder", size / backup_s / 1e6, "MB/s", 100),
    ]
