"""Missing parts of a log's files, reported by jobs that skip damage.

A scan sees only the bytes in the files; it does not notice a missing file, or one that ends early
after a whole record, or a log that ends before what its queues point to.
"""

from collections.abc import Sequence

from ..audit.audit_span import Finding
from ..reading.log_end import LogEnd
from ..reading.log_source import LocalLogSource, LogSource


def lacking_files(source: LogSource, known: Sequence[Finding] = ()) -> list[Finding]:
    """A finding for every such stretch that none of the `known` ends at."""
    if not isinstance(source, LocalLogSource):
        return []
    files = source.files
    found = [
        Finding("missing_file", files.path_of(start), start, end, "missing file")
        for start, end in files.missing()
    ]
    for file in files.short():
        if not any(file.base <= each.offset and each.end == file.end for each in known):
            detail = f"the file is cut off: it has {file.length} bytes, not {files.file_size}"
            end = file.base + files.file_size
            found.append(Finding("truncated_file", file.path, file.end, end, detail))
    lost = lost_end(source, source.end())
    if lost is not None and not any(each.end >= lost.end for each in (*known, *found)):
        found.append(lost)
    return found


def lost_end(source: LogSource, end: LogEnd) -> Finding | None:
    """A finding if the log continued behind its `end`, as its queues tell."""
    lost = source.lost_end(end) if isinstance(source, LocalLogSource) else None
    if lost is None or not isinstance(source, LocalLogSource):
        return None
    queues = source.queues
    return Finding(
        kind="lost_end",
        file=source.files.path_of(lost[0]),
        offset=lost[0],
        end=lost[1],
        detail=lost[2],
        topic=queues.topic,
        queue_id=queues.queue_id,
        queue_offset=queues.queue_offset,
    )
