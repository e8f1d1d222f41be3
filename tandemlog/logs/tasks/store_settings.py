"""The settings of a store for a rebuild, taken from its files: the sizes of its index, whether tags
are indexed, the delays of its levels, and from where on masters of tandemlog wrote its log.

RocketMQ puts each tag into the index since 5.4; a store of an older broker has no such entries, and
neither must its rebuilt index. The newest file with entries of tagged records shows which it is.

The list of delay levels is a setting of the broker that no file holds. The newest unit of each
schedule queue and its record say what that queue's level was (`delays_of_queues`).
"""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import SCHEDULE_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import decode_epochs
from tandemlog.format.files.index_layout import (
    ENTRY_DTYPE,
    HEADER_SIZE,
    decode_index_header,
    entry_position,
    index_file_size,
)
from tandemlog.format.files.names import parse_index_file_name
from tandemlog.format.files.queue_unit import DEFAULT_DELAY_LEVELS, DelayLevels, delays_of_queues
from tandemlog.format.files.store_json import loads
from tandemlog.format.record.record import Record

from ..job_errors import StoreLayoutError
from ..reading.archived_log import ArchivedLogSource
from ..reading.find_record import record_at
from ..reading.log_source import LocalLogSource, LogSource
from ..reading.log_spans import split
from ..reading.queue_ends import CONSUME_QUEUE, queue_files, units_of
from ..reading.span_scan import Piece, SpanScan
from ..reading.window_dispatch import dispatched, index_items
from .queue_writer import MAX_OFFSET

INDEX = "index"
EPOCH_FILES = "epochFileCheckpoint", "epochFileCheckpoint.bak"
_SAMPLE_BYTES = 4 << 20


def index_paths(store: str | Path | None) -> list[Path]:
    """The index files, oldest first."""
    directory = Path(store) / INDEX if store is not None else None
    if directory is None or not directory.is_dir():
        return []
    names = [name for name in os.listdir(directory) if parse_index_file_name(name) is not None]
    return [directory / name for name in sorted(names)]


def check_index_sizes(store: str | Path | None, slots: int, entries: int) -> None:
    """Raises StoreLayoutError if an index file does not have the length of these numbers."""
    wanted = index_file_size(slots, entries)
    for path in index_paths(store):
        length = path.stat().st_size
        if length not in (0, wanted):
            raise StoreLayoutError(
                f"{path} has {length} bytes; {slots} slots and {entries} entries make {wanted}: "
                "give the sizes that the store was written with (--index-slots, --index-entries)"
            )


def indexes_tags(source: LogSource, slots: int, entries: int) -> bool | None:
    """Whether the store's index has entries of tags; None if no file can tell. The index files
    must have the right length. Raises OSError."""
    for path in reversed(index_paths(source.files.store)):
        content = _read_entries(path, slots, entries)
        tags = _has_tags(source, *content) if content is not None else None
        if tags is not None:
            return tags
    return None


def stored_delay_levels(source: LogSource) -> str:
    """The levels as a text: RocketMQ's, except where the store's queues show another delay. Raises
    OSError."""
    levels = DelayLevels(DEFAULT_DELAY_LEVELS)
    if not isinstance(source, LocalLogSource) or source.files.store is None:
        return levels.text
    directory = Path(source.files.store) / CONSUME_QUEUE
    queues = (
        (units_of(path) for _, path in reversed(files))
        for _, _, files in queue_files(directory, SCHEDULE_TOPIC)
    )
    with closing(source.connect()) as log:

        def stored_record(offset: int) -> Record | None:
            file = source.files.find(offset)
            return record_at(log, offset, file.end) if file is not None else None

        return levels.with_delays(delays_of_queues(queues, stored_record)).text


def batch_topics(source: LogSource) -> frozenset[str]:
    """Topics of RocketMQ's batch queues, by config/topics.json or the tables of an archive, if
    there are any. Raises FetchError, CorruptLogError for an archive."""
    try:
        if isinstance(source, ArchivedLogSource):
            content = source.topics()
        elif source.files.store is not None:
            content = (Path(source.files.store) / "config" / "topics.json").read_bytes()
        else:
            content = b""
        document = loads(content) if content else None
    except (OSError, FormatError):
        return frozenset()
    table = document.get("topicConfigTable") if isinstance(document, dict) else None
    names = []
    for name, topic in table.items() if isinstance(table, dict) else ():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            names.append(str(name))
    return frozenset(names)


def committed_offsets(source: LogSource) -> dict[tuple[str, str, int], int]:
    """The queue offset up to which each group has consumed, by (group, topic, queue id): what
    config/consumerOffset.json of a store on disk says. Empty for a log alone, and for a file that
    cannot be read."""
    store = source.files.store
    if store is None:
        return {}
    try:
        document = loads((Path(store) / "config" / "consumerOffset.json").read_bytes())
    except (OSError, FormatError):
        return {}
    table = document.get("offsetTable") if isinstance(document, dict) else None
    committed = {}
    for name, queues in table.items() if isinstance(table, dict) else ():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if str(queue_id).isdecimal() and type(offset) is int:
                committed[group, topic, int(queue_id)] = offset
    return committed


def own_log_begin(store: str | Path | None) -> int:
    """From which log offset on masters of tandemlog wrote the log, by its epochs; MAX_OFFSET if
    they never did, or no file says."""
    for name in EPOCH_FILES if store is not None else ():
        path = Path(store or "") / name
        try:
            entries = decode_epochs(path.read_bytes()).entries
        except (OSError, FormatError):
            continue
        for entry in entries:
            if entry.epoch:  # 0 stands for what a broker wrote before
                return entry.start_offset
    return MAX_OFFSET


def _read_entries(path: Path, slots: int, entries: int) -> tuple[NDArray[np.void], int, int] | None:
    """The entries of a file and the log offsets of its first and last record; None if empty."""
    if path.stat().st_size <= HEADER_SIZE:
        return None
    with path.open("rb") as file:
        header = decode_index_header(file.read(HEADER_SIZE))
        count = min(header.next_entry, entries) - 1
        if count <= 0:
            return None
        file.seek(entry_position(slots, 1))
        data = np.frombuffer(file.read(count * ENTRY_DTYPE.itemsize), ENTRY_DTYPE)
    offsets = data["physical_offset"]
    return data, int(offsets.min()), int(offsets.max())


def _has_tags(source: LogSource, entries: NDArray[np.void], first: int, last: int) -> bool | None:
    """Compare the file's entries with those that some of its records would have now."""
    stored = _pairs(entries)
    there = missing = 0
    for piece in _records(source, first, min(last, first + _SAMPLE_BYTES)):
        with_tags, without = (
            _pairs(index_items(dispatched(piece, index=True, index_tags=tags)))
            for tags in (True, False)
        )
        for pair in with_tags - without:
            if first < pair[1] < last:  # a record at the edge may be in two files
                there, missing = there + (pair in stored), missing + (pair not in stored)
    return None if there == missing == 0 else there >= missing


def _pairs(entries: NDArray[np.void]) -> set[tuple[int, int]]:
    """Key hash and record of each entry."""
    return set(zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True))


def _records(source: LogSource, first: int, last: int) -> list[Piece]:
    """The readable pieces of the log between two of its records."""
    with closing(source.connect()) as log:
        return [
            Piece(part.data.copy(), part.base, part.walk, part.headers)
            for span in split(source.files, first, last + 1, last + 1 - first)
            for part in SpanScan(log, span, check_crc=False)
            if isinstance(part, Piece)
        ]
