"""A file of the log is mended, and with it what was derived from it.

    1  evidence   what the file has there now is kept
    2  note       what was derived may lack these records (mend_note.py)
    3  replace    the file is written again and put in place (log_mending.py); one with a place
                  that cannot be read keeps its blocks (bad_places.py)
    4  derived    queues, index and folds take what dispatch had skipped (reput.py)
    5  durable    at a later checkpoint, once 4 has begun and is through: the note goes

A crash before 3 leaves the old file, and the scrub finds it again. After 3 the note is there, and
the next open does 4 again.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..disk_errors import refusing
from ..errors import FlushFailedError
from ..store_parts import StoreParts
from .bad_places import occupy
from .log_mending import Pace, Patch, at_once, keep_evidence, mend_file


def mend_store(
    parts: StoreParts,
    write_lock: AbstractContextManager[Any],
    patches: Sequence[Patch],
    pace: Pace = at_once,
    *,
    again: bool,
) -> None:
    """Put right bytes, of one file, in place of wrong ones, which are kept. Serves and takes puts
    meanwhile. `again`: dispatch may have taken wrong fields from these records, so
    what was derived is rebuilt, as where it had skipped them.

    Raises what mend_file does, and what `ReputService.mended` does: then the log is right, and the
    next open ends the rest.
    """
    log, files, own = parts.log, parts.files, parts.paths.own
    now_ms = parts.clock.now_ms()
    read = [keep_evidence(log, files, own, patch, now_ms) for patch in patches]
    ranges = [(patch.start, patch.end) for patch in patches]
    with refusing(f"{parts.mend_note.path} cannot be written"), write_lock:
        parts.mend_note.add(ranges)

    def ready() -> None:
        if not all(read) and (file := log.mapped.find(patches[0].start)) is not None:
            occupy(files, own, file.path, now_ms)

    try:
        mend_file(log, files, own, patches, write_lock, pace, ready)
    except FlushFailedError:
        raise  # the next open may find the new file
    except Exception:
        _forget(parts, ranges, write_lock)
        raise
    for start, end in ranges:
        log.unbar(start, end)
    needed = [parts.reput.mended(start, end, again=again) for start, end in ranges]
    if any(needed):
        parts.mend_note.tell(ranges)
    else:
        _forget(parts, ranges, write_lock)


def _forget(
    parts: StoreParts, ranges: Sequence[tuple[int, int]], lock: AbstractContextManager[Any]
) -> None:
    with refusing(f"{parts.mend_note.path} cannot be removed"), lock:
        parts.mend_note.remove(ranges)


def end_mending(parts: StoreParts) -> None:
    """At open, before dispatch: what a crash has left between steps 3 and 5. Raises as
    ReputService.mended."""
    end = parts.queues.next_offset
    for start, stop in parts.mend_note.ranges:
        parts.reput.mended(start, min(stop, end), again=True)
    parts.mend_note.tell(parts.mend_note.ranges)
