"""A scan of 1 GiB from an archive in a folder, beside one of the log's files, both cold.

Before each scan its files leave the page cache. Both check every checksum, by `scan` as the command
runs it; the second figure is the time of one topic and ten minutes of that log, which is 2 % of it.
"""

import os
import time
from functools import partial
from pathlib import Path

from benchmarks.harness.figures import Figure, medians_in_turns
from benchmarks.harness.made_log import FILE_BYTES, make_log
from tandemlog.archive.backup import backup
from tandemlog.archive.folder_store import FolderStore
from tandemlog.logs.jobs.scan import ScanOptions, scan
from tandemlog.logs.reading.log_source import open_store
from tandemlog.logs.reading.selection import Selection
from tandemlog.logs.reading.span_scan import Piece
from tandemlog.memory import keep_freed_memory
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.stored_log import StoredLog

FILES = (1 << 30) // FILE_BYTES
MB = 1e6
RUNS = 5
FIRST_MS, FILE_MS = 1_700_000_000_000, 600_000


def drop_cache(folder: Path) -> None:
    """Of every file below the folder: flushed, and out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def scan_seconds(place: Path, selection: Selection) -> float:
    """Seconds for one cold scan of the log, or of what is chosen."""
    drop_cache(place)
    began = time.perf_counter()
    read = sum(scan(open_store(place), ScanOptions(selection), _size))
    seconds = time.perf_counter() - began
    if not read:
        raise RuntimeError(f"nothing was read of {place}")
    return seconds


def _size(piece: Piece) -> int:
    return int(piece.walk.sizes.sum())


def run(folder: Path) -> list[Figure]:
    keep_freed_memory()
    store, archive = folder / "store", folder / "archive"
    size = make_log(store, FILES)
    log = StoredLog(StoreConfig(store, commit_log_file_size=FILE_BYTES))
    try:
        backup(FolderStore(archive), log, now_ms=0)
    finally:
        log.close()
    everything = Selection()
    part = Selection({"topic-03"}, FIRST_MS, FIRST_MS + FILE_MS)
    files, archived, chosen = medians_in_turns(
        RUNS,
        [
            partial(scan_seconds, store / "commitlog", everything),
            partial(scan_seconds, archive, everything),
            partial(scan_seconds, archive, part),
        ],
    )
    return [
        Figure(
            "cold scan of an archive, of the log's files",
            size / MB / archived,
            "MB/s",
            0.5,
            size / MB / files,
        ),
        Figure("one topic and 1/32 of the time, of all", chosen, "s", 0.2, archived, at_most=True),
    ]
