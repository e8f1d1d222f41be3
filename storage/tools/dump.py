"""The contents of a store's files as rows for people and programs; changes nothing.

A dump shows the contents and checks little: it stops at the first bytes that are not a record, unit
or entry, and says in `notes` where and why. verify finds out what is wrong. After a
failed fsync it shows what reads show, which may be more than the disk has, and adds a note.
"""

import base64
from collections.abc import Callable, Iterator

import numpy as np

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE, valid_units
from tandemlog.format.record.record import Record

from ..config import StoreConfig
from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk.real_file_system import RealFileSystem
from ..inspect.geometry import Geometry
from ..inspect.index_files import read_index_file
from ..inspect.log_files import LogScan
from ..metadata.epoch_file import EpochFile
from ..state_files.store_checkpoint import StoreCheckpoint
from ..store_paths import StorePaths
from .faults import cautions

Row = dict[str, object]


class Dump:
    """Rows to iterate once; `notes` is complete when they have ended."""

    def __init__(self, rows: Callable[[list[str]], Iterator[Row]]) -> None:
        self.notes: list[str] = []
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return self._rows(self.notes)


def dump(config: StoreConfig, what: str, files: FileSystem | None = None) -> Dump:
    """`what` is messages, queues, index, checkpoint or epochs; ValueError for anything else.

    Rows have the names of the fields as the command line prints them. Raises StoreLayoutError
    while iterating where files do not fit together, or no index of the configured size.
    """
    file_system = files if files is not None else RealFileSystem()
    kinds: dict[str, Callable[[StoreConfig, FileSystem, list[str]], Iterator[Row]]] = {
        "messages": _messages,
        "queues": _queues,
        "index": _index,
        "checkpoint": _checkpoint,
        "epochs": _epochs,
    }
    if what not in kinds:
        raise ValueError(f"{what!r} cannot be dumped; one of {', '.join(kinds)} can")

    def rows(notes: list[str]) -> Iterator[Row]:
        notes += [each.reason for each in cautions(config.directory, file_system)]
        return kinds[what](config, file_system, notes)

    return Dump(rows)


def message_row(record: Record) -> Row:
    """A record as dump prints it; the body as stored, in base64."""
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "msg_id": record.msg_id,
        "tags": record.tags,
        "keys": record.keys,
        "uniq_key": record.uniq_key,
        "properties": record.properties,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "born_timestamp": record.born_timestamp,
        "born_host": record.born_host,
        "store_timestamp": record.store_timestamp,
        "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc,
        "body": base64.b64encode(record.body).decode(),
    }


def _messages(config: StoreConfig, files: FileSystem, notes: list[str]) -> Iterator[Row]:
    scan = LogScan(files, StorePaths(config.directory).commit_log, config.commit_log_file_size)
    for record in scan:
        yield message_row(record)
    notes.append(f"{scan.file}: stopped at offset {scan.end}: {scan.reason}")


def _queues(config: StoreConfig, files: FileSystem, notes: list[str]) -> Iterator[Row]:
    geometry = Geometry.of(config, files)
    notes += geometry.notes
    for topic, queue_id, directory in geometry.queue_directories():
        mapped = MappedFileQueue(files, directory, geometry.queue_file_size, read_only=True)
        for file in mapped.files:
            units = np.frombuffer(file.view(0, file.size), dtype=UNIT_DTYPE)
            valid = valid_units(units)
            end = len(units) if valid.all() else int(valid.argmin())
            for number in np.flatnonzero(units["size"][:end] != PRE_BLANK_SIZE).tolist():
                yield {
                    "topic": topic,
                    "queue_id": queue_id,
                    "queue_offset": file.base // UNIT_SIZE + number,
                    "physical_offset": int(units["physical_offset"][number]),
                    "size": int(units["size"][number]),
                    "tags_code": int(units["tags_code"][number]),
                }
            if end < len(units):
                break
        mapped.close()


def _index(config: StoreConfig, files: FileSystem, notes: list[str]) -> Iterator[Row]:
    geometry = Geometry.of(config, files)
    geometry.check_index()
    for path in geometry.index_files():
        index = read_index_file(files, path, config.index_slots, config.index_entries)
        if index.header.next_entry > config.index_entries:
            notes.append(
                f"{path}: its header counts {index.header.next_entry} entries, it holds fewer"
            )
        for number, entry in enumerate(index.entries, start=1):
            seconds = int(entry["time_diff"])
            yield {
                "file": path.name,
                "number": number,
                "key_hash": int(entry["key_hash"]),
                "physical_offset": int(entry["physical_offset"]),
                "time_diff_seconds": seconds,
                "store_second": index.header.begin_timestamp // 1000 + seconds,
                "previous": int(entry["previous"]),
            }


def _checkpoint(config: StoreConfig, files: FileSystem, notes: list[str]) -> Iterator[Row]:
    checkpoint = StoreCheckpoint(StorePaths(config.directory).checkpoint, files)
    values = checkpoint.load()
    if checkpoint.note:
        notes.append(checkpoint.note)
    yield {
        "physic_msg_timestamp": values.physic_msg_timestamp,
        "logics_msg_timestamp": values.logics_msg_timestamp,
        "index_msg_timestamp": values.index_msg_timestamp,
        "master_flushed_offset": values.master_flushed_offset,
        "confirm_phy_offset": values.confirm_phy_offset,
        "logics_physical_offset": values.logics_physical_offset,
    }


def _epochs(config: StoreConfig, files: FileSystem, notes: list[str]) -> Iterator[Row]:
    epochs = EpochFile(StorePaths(config.directory).epochs, files)
    epochs.load()
    if epochs.note:
        notes.append(epochs.note)
    for entry in epochs.table.entries:
        yield {"epoch": entry.epoch, "start_offset": entry.start_offset}
