"""Missing parts of a log's files, reported by jobs that skip damage.

A scan sees only the bytes in the files; it does not notice a missing file, or one that ends early
after a whole record, or a log that ends before what its queues point to.
"""

from collections.abc import Iterable, Sequence

from ..audit.audit_span import Finding
from ..job_errors import CorruptLogError, OnCorruption
from ..reading.log_end import LogEnd
from ..reading.log_files import LogFile, LogFiles
from ..reading.log_source import LocalLogSource, LogSource


def with_missing_files(
    source: LogSource, damage: Iterable[Finding], on_corruption: OnCorruption
) -> list[Finding]:
    """The damage that a scan has found, then a finding for every missing part in which no damage
    ends. Raises CorruptLogError for the first damage with OnCorruption.FAIL."""
    findings = list(damage)
    if findings and on_corruption is OnCorruption.FAIL:
        raise CorruptLogError(findings[0].file, findings[0].offset, findings[0].detail)
    return findings + _missing_parts(source, findings)


def _missing_parts(source: LogSource, damage: Sequence[Finding]) -> list[Finding]:
    if not isinstance(source, LocalLogSource):
        return []
    files = source.files
    parts = [
        Finding("missing_file", files.path_of(start), start, end, "missing file")
        for start, end in files.missing()
    ]
    parts += [
        cut_off_file(files, file, file.end)
        for file in files.short()
        if not any(file.base <= each.offset and each.end == file.end for each in damage)
    ]
    lost = lost_end(source, source.end())
    if lost is not None and not any(each.end >= lost.end for each in (*damage, *parts)):
        parts.append(lost)
    return parts


def cut_off_file(files: LogFiles, file: LogFile, offset: int) -> Finding:
    """A finding for a file that is cut off, from its last whole record's end on."""
    detail = f"the file is cut off: it has {file.length} bytes, not {files.file_size}"
    return Finding("truncated_file", file.path, offset, file.base + files.file_size, detail)


def lost_end(source: LogSource, end: LogEnd) -> Finding | None:
    """A finding if the queues say that the log continued behind its `end`."""
    if not isinstance(source, LocalLogSource) or (lost := source.lost_end(end)) is None:
        return None
    queues = source.queues
    place = queues.topic, queues.queue_id, queues.queue_offset
    return Finding("lost_end", source.files.path_of(lost[0]), *lost, *place)
