"""Whether an archive has all that its newest manifest names, whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..format.archive.manifest import SegmentEntry
from .archive_reader import ArchiveReader
from .errors import ArchiveDamagedError, ObjectMissingError


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was read: objects, bytes of log, records; and what is wrong, in sentences."""

    objects: int
    size: int
    records: int
    faults: tuple[str, ...]


def check_archive(
    reader: ArchiveReader, progress: Callable[[int, int], None] = lambda done, whole: None
) -> ArchiveReport:
    """Reads every object. Raises ArchiveUnavailableError where the store does not answer."""
    manifest = reader.manifest
    faults: list[str] = []
    objects = size = records = 0
    for entry in manifest.segments:
        faults += _faults_of(reader, entry)
        objects += 2
        size += entry.end - entry.start
        records += entry.records
        progress(size, manifest.size)
    for state in manifest.states:
        objects += 1
        try:
            reader.state(state)
        except (ArchiveDamagedError, ObjectMissingError) as error:
            faults.append(str(error))
    spans = manifest.spans()
    faults += [
        f"the log from {before[1]} to {after[0]} is not in it" for before, after in pairwise(spans)
    ]
    return ArchiveReport(objects, size, records, tuple(faults))


def _faults_of(reader: ArchiveReader, entry: SegmentEntry) -> Iterator[str]:
    try:
        content = reader.segment(entry)
    except (ArchiveDamagedError, ObjectMissingError) as error:
        yield str(error)
        return
    try:
        index = reader.index(entry)
        if entry.is_whole:
            index.check_blocks(entry.start, content)
    except (ArchiveDamagedError, ObjectMissingError, ValueError) as error:
        yield str(error)
