"""An archive, as what makes a node's folder takes it: bytes, tables and terms up to a point."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.restore_point import RestorePoint, Until, restore_point
from tandemlog.format.archive.manifest import Manifest, StateEntry
from tandemlog.format.archive.segment_index import BLOCK_BYTES
from tandemlog.format.archive.state import CONSUMER_OFFSETS, GROUPS, TOPICS
from tandemlog.format.constants import Buffer
from tandemlog_server.storage.tools.restore_archive import ArchivedLog

from .times import parse_time_ms

PART_BYTES = 16 * BLOCK_BYTES
"""To read at a time. The allocator keeps such a piece for the next one; of a larger one every page
would be new, which takes longer than the reading."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is restored, and what of it is not there, in sentences."""

    log: ArchivedLog
    point: RestorePoint
    notes: tuple[str, ...]


def parse_until(text: str) -> Until:
    """A whole number is a log offset; nothing, all there is. Raises typer.BadParameter."""
    if not text:
        return Until()
    if text.isdecimal():
        return Until(offset=int(text[:30]))
    return Until(time_ms=parse_time_ms(text, int(time.time() * 1000), "a log offset, "))


def archived_log(reader: ArchiveReader, until: Until) -> Found:
    """Raises NotArchivedError where nothing is at or before that point, and what a reader does."""
    manifest, point = reader.manifest, restore_point(reader, until)

    def parts(start: int, end: int) -> Iterator[tuple[int, Buffer]]:
        for entry in manifest.covering(start, end):
            # whole blocks of the segment: else those at the seams would be read twice
            for at in range(entry.start, min(entry.end, end), PART_BYTES):
                below = min(at + PART_BYTES, entry.end, end)
                if below > start:
                    yield from reader.blocks(max(at, start), below)

    def print_of(start: int, end: int) -> str:
        names = [
            f"{each.name.log_key} {min(each.end, end)}" for each in manifest.covering(start, end)
        ]
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    notes = []
    if until.offset is not None and until.offset > manifest.end:
        notes.append(f"the archive ends at {manifest.end}, before {until.offset}")
    tables = _tables(reader, point.state)
    later = _tables(reader, point.later)
    offsets, offsets_at = _offsets(reader, point.end)
    if point.state is None:
        notes.append(
            "the archive has no tables at or before the end: topics and groups are those of the "
            "next ones, and no group has an offset"
            if later
            else "the archive has no tables: topics have the queues that their messages need, and "
            "no group has an offset"
        )
    elif offsets is None:
        notes.append("the archive has no consumer offsets at or before the end")
    if point.begin and point.prologue is None:
        notes.append(
            f"what came before {point.begin} is not in the archive: queues whose messages were all "
            "deleted begin at 0 again, and a retry of a producer that has put nothing since is "
            "stored twice"
        )
    log = ArchivedLog(
        source=reader.store.url,
        begin=point.begin,
        end=point.end,
        file_size=manifest.file_size,
        history=manifest.history,
        parts=parts,
        print_of=print_of,
        topics=tables.get(TOPICS, later.get(TOPICS)),
        groups=tables.get(GROUPS, later.get(GROUPS)),
        consumer_offsets=offsets,
        offsets_at=offsets_at,
        later_topics=later.get(TOPICS),
        prologue=None if point.prologue is None else reader.state(point.prologue).prologue,
        last_start=_last_start(manifest, point),
    )
    return Found(log, point, tuple(notes))


def _last_start(manifest: Manifest, point: RestorePoint) -> int:
    """A segment begins with a record, or has none."""
    with_records = [each for each in manifest.covering(point.begin, point.end) if each.records]
    return with_records[-1].start if with_records else 0


def _offsets(reader: ArchiveReader, end: int) -> tuple[bytes | None, int]:
    """Consumer offsets, and the log offset, of the newest tables at or below `end` that have them:
    those that come with a prologue may have none."""
    below = [each for each in reader.manifest.states if each.name.log_offset <= end]
    for entry in sorted(below, key=lambda each: (each.name.log_offset, each.at_ms), reverse=True):
        found = _tables(reader, entry).get(CONSUMER_OFFSETS)
        if found is not None:
            return found, entry.name.log_offset
    return None, 0


def _tables(reader: ArchiveReader, entry: StateEntry | None) -> dict[str, bytes]:
    if entry is None:
        return {}
    return {name: text.encode() for name, text in reader.state(entry).tables.items()}
