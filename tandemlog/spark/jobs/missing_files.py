"""Missing parts of a log's files, reported by jobs that skip damage.

A scan sees only the bytes in the files; it does not notice a missing file, or one that ends early
after a whole record.
"""

from collections.abc import Sequence

from ..audit.audit_span import Finding
from ..log.source import LocalLogSource, LogSource


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
    return found
