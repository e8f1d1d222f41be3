"""Analyzes a store before anything in it is changed: where its log ends, and what is wrong.

    recovery point of ours     scan from min(dispatched, flushed), CRC included, to the end; so the
                               work is what came since the last checkpoint; of a
                               log that was restored, from its last part
    none (RocketMQ's store)    scan everything; CRC too where the stop was not clean

A bad record below what was durable is damage, above it the end (log/log_scanner.py). Damage at the
very end is skipped like any other if it is known that a record ends at the durable position: after
a clean stop, on a node that confirms for itself or was a master, and where all was dispatched.

If the durable position lies beyond the log's files, a file is missing; these bytes are `lost`. A
node that confirms for itself does not open then: it would use the queue offsets of acknowledged
records a second time. A replica opens and follows; it cannot become master before it has those
bytes again (session_file.py). If a master with async flush lost its unflushed tail in a power cut,
nothing is `lost`: unsynced bytes were never recorded as durable.

What counts as durable without a point of ours: after a clean stop everything that the queues point
to (RocketMQ stops only when all is dispatched and flushed), after a crash what its checkpoint says:
an offset (RocketMQ 5.4 and later), or by its times the files before the one at which RocketMQ's own
recovery would begin. RocketMQ would not even read those, so nothing in them may end the log.

`recover --dry-run` shows this analysis; recovery acts on it.
"""

from dataclasses import dataclass, field

import numpy as np

from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.checkpoint import Checkpoint
from tandemlog.format.files.names import offset_file_name
from tandemlog.format.record.record import decode_record

from ..config import ConfirmSource, StoreConfig
from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..errors import StoreLayoutError
from ..inspect.broker_files import records_before, says_of_beginning, unread_tables
from ..inspect.geometry import Geometry
from ..inspect.queue_files import open_queues
from ..log.log_scanner import Damage, LogScanner
from ..log.record_search import find_record, record_view
from ..state_files.abort_file import AbortFile
from ..state_files.recovery_point import RecoveryPoint, RecoveryPointFile
from ..state_files.store_checkpoint import StoreCheckpoint
from ..store_paths import StorePaths

REMAINS_WINDOW = 8 << 20
"""How far behind the log's end to search for remains of a torn write."""


@dataclass(frozen=True, slots=True)
class Remains:
    """Bytes behind the log's end that are not zero, and whether whole records are among them."""

    end: int
    has_records: bool


@dataclass(slots=True)
class Analysis:
    """What was found; offsets are positions in the log."""

    clean: bool
    point: RecoveryPoint | None
    checkpoint: Checkpoint
    log_start: int = 0
    log_end: int = 0
    durable: int = 0
    scanned_from: int = 0
    scanned_records: int = 0
    store_timestamp: int = 0
    reason: str = ""
    damages: list[Damage] = field(default_factory=list)
    remains: Remains | None = None
    lost: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def cuts_records(self) -> bool:
        """Whether recovery will cut whole records behind a damaged one, or a durable record."""
        if self.remains is None:
            return False
        return self.remains.has_records or any(
            damage.end > self.log_end >= damage.start for damage in self.damages
        )


def analyze(geometry: Geometry, files: FileSystem) -> Analysis:
    """Analyze the store of `geometry`; nothing is changed.

    Raises StoreLayoutError if the log files do not fit together, or are somewhere else;
    UnreadableError if the disk cannot read what is needed.
    """
    config = geometry.adopted()
    paths = StorePaths(config.directory)
    checkpoint = StoreCheckpoint(paths.checkpoint, files)
    points = RecoveryPointFile(paths.recovery_point, files)
    analysis = Analysis(
        clean=not AbortFile(paths.abort, files).exists(),
        point=points.load(),
        checkpoint=checkpoint.load(),
        notes=[*geometry.notes, *unread_tables(files, paths)],
    )
    mapped = MappedFileQueue(files, paths.commit_log, config.commit_log_file_size, read_only=True)
    if mapped.files:
        analysis.notes += [note for note in (checkpoint.note, points.note) if note]
    else:
        _check_log_is_here(paths, geometry, analysis.point)
    try:
        analysis.log_start = mapped.start
        if analysis.point is None:
            missing = records_before(mapped, open_queues(geometry, files, []))
            if missing:
                analysis.notes.append(says_of_beginning(mapped, missing))
        _scan(analysis, mapped, geometry, config)
        analysis.remains = remains_behind(mapped, analysis.log_end)
    finally:
        mapped.close()
    return analysis


def _check_log_is_here(paths: StorePaths, geometry: Geometry, point: RecoveryPoint | None) -> None:
    """A broker can keep its log elsewhere, perhaps on a disk that is not mounted. Taking that for
    an empty log would drop all queues, and set back all consumers."""
    if point is not None and point.flushed > 0:
        raise StoreLayoutError(
            f"{paths.commit_log} has no files, but was flushed up to {point.flushed}: mount its "
            f"disk or bring its files there, or remove {paths.recovery_point} if the log is gone"
        )
    if point is not None or geometry.files.status(paths.own) is not None:
        return
    end = _end_by_queues(geometry)
    if end:
        raise StoreLayoutError(
            f"{paths.commit_log} has no files, but the queues know a log up to {end}: bring its "
            "files there (a broker's storePathCommitLog may name another place), or remove "
            f"{paths.queues} if the log is gone"
        )


def _scan(
    analysis: Analysis, mapped: MappedFileQueue, geometry: Geometry, config: StoreConfig
) -> None:
    point, crc = analysis.point, config.verify_crc_on_recover
    if point is None:
        start = mapped.start
        analysis.durable = _durable_of_foreign(analysis, mapped, geometry)
        crc = crc and not analysis.clean
    else:
        start = max(min(max(point.dispatched, point.walked), point.flushed), mapped.start)
        analysis.durable = point.flushed
        if start > mapped.end:
            start = mapped.files[-1].base if mapped.files else 0
    durable = min(analysis.durable, mapped.end)
    whole = min(_whole_below(analysis, config), mapped.end)

    def scan(start: int) -> LogScanner:
        return LogScanner(
            mapped,
            start,
            durable=durable,
            whole=whole,
            check_crc=crc,
            check_property_crc=config.property_crc,
        ).run()

    scanner = scan(start)
    base = start - start % mapped.file_size
    if scanner.damages and scanner.damages[0].start == start > base:
        # Perhaps no record begins there any more: another program has continued with this log.
        start = max(base, mapped.start)
        scanner = scan(start)
    analysis.scanned_from, analysis.scanned_records = scanner.start, scanner.records
    analysis.log_end, analysis.reason = scanner.end, scanner.reason
    if crc and scanner.last_record >= 0 and _is_torn(mapped, scanner, analysis.durable):
        analysis.log_end = scanner.last_record
        analysis.reason = f"record at {scanner.last_record}: its properties end in zero bytes"
    analysis.damages = scanner.damages
    _find_lost(analysis, mapped, config)
    # Without the checkpoint's times: they have no checksum, the records or our point tell the same,
    # and no message is stored earlier than this from now on.
    analysis.store_timestamp = max(
        scanner.last_store_timestamp, point.store_timestamp if point is not None else 0
    )


def _whole_below(analysis: Analysis, config: StoreConfig) -> int:
    """The highest log offset at which a record is known to end."""
    point = analysis.point
    if point is None:
        return analysis.durable if analysis.clean else 0
    if point.whole:
        return point.flushed
    return point.dispatched if point.dispatched <= point.flushed else 0


def _find_lost(analysis: Analysis, mapped: MappedFileQueue, config: StoreConfig) -> None:
    """Whether files are gone that held what was durable. Raises StoreLayoutError on a node that
    confirms for itself."""
    point = analysis.point
    if not mapped.files or analysis.durable <= mapped.end or (point is None and not analysis.clean):
        return
    path = mapped.directory / offset_file_name(mapped.end)
    paths = StorePaths(config.directory)
    reason = f"the log was durable up to {analysis.durable}, its files end at {mapped.end}"
    if config.confirm is ConfirmSource.LOCAL:
        evidence = paths.recovery_point if point is not None else paths.queues
        raise StoreLayoutError(
            f"{path} is missing or empty: {reason}. Restore that file, or start this node "
            "with an empty store as a slave of one that has the log; if no node has it, "
            f"remove {evidence} to continue without its content; its queue offsets are then "
            "reused"
        )
    analysis.lost = analysis.durable
    analysis.damages = [
        *analysis.damages,
        Damage(mapped.end, analysis.durable, str(path), "it is missing"),
    ]
    analysis.notes.append(
        f"{path} is missing or empty: {reason}. This node cannot be a master until it "
        "has followed a node that has the rest, or until the file is back"
    )


def _is_torn(mapped: MappedFileQueue, scanner: LogScanner, durable: int) -> bool:
    """Whether the last record, which was not all durable, was written only in part: the CRC does
    not cover its properties, whose text never ends in a zero byte."""
    file = mapped.find(scanner.last_record)
    assert file is not None
    record = decode_record(record_view(file, scanner.last_record - file.base), check_crc=False)
    return scanner.last_record + record.size > durable and record.properties_raw.endswith(b"\0")


def _durable_of_foreign(analysis: Analysis, mapped: MappedFileQueue, geometry: Geometry) -> int:
    if not analysis.clean:
        return max(analysis.checkpoint.logics_physical_offset, _recovery_start(analysis, mapped))
    return _end_by_queues(geometry)


def _end_by_queues(geometry: Geometry) -> int:
    """The highest log offset that a queue's last unit reaches."""
    return max((queue.log_end for queue in open_queues(geometry, geometry.files, [])), default=0)


def _recovery_start(analysis: Analysis, mapped: MappedFileQueue) -> int:
    """Where RocketMQ's recovery begins after a crash: at the newest file whose first record was
    durable by the checkpoint's times; 0 if there is no such file."""
    limit = analysis.checkpoint.min_timestamp
    for file in reversed(mapped.files) if limit else ():
        try:
            first = decode_record(record_view(file, 0), physical_offset=file.base)
        except CorruptRecordError:
            continue
        if 0 < first.store_timestamp <= limit:
            return file.base
    return 0


def remains_behind(mapped: MappedFileQueue, end: int) -> Remains | None:
    """What lies behind the log's end, within REMAINS_WINDOW; None if all of it is zero."""
    last, has_records = 0, False
    for file in mapped.files:
        if file.end <= end or file.base >= end + REMAINS_WINDOW:
            continue
        begin = max(end - file.base, 0)
        stop = min(file.size, end + REMAINS_WINDOW - file.base)
        used = np.flatnonzero(np.frombuffer(file.view(begin, stop - begin), dtype=np.uint8))
        if len(used):
            last = file.base + begin + int(used[-1]) + 1
            whole = find_record(file, begin, stop)
            has_records = has_records or whole is not None
    return Remains(last, has_records) if last else None
