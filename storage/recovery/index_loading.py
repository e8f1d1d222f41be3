"""Taking over the index files that a store has on disk. The newest one is kept, never deleted for
having been open when the store crashed.

    own state (index_state.py)      entries beyond it are cut, and rebuilt from the log
    none, stopped cleanly           taken as it is: RocketMQ stops when all is dispatched
    none, crashed                   the newest file is compared with the log (index_checking.py)
    no files                        made from the first record of the log on

Whatever is missing then is dispatched from the service's `next_offset` on.
"""

from dataclasses import dataclass, field

from tandemlog.format.errors import FormatError
from tandemlog.format.words import counted

from ..disk.file_system import FileSystem
from ..index.index_service import IndexService
from ..index.index_state import IndexState, load_index_state


@dataclass(slots=True)
class IndexFindings:
    """What was on disk, and what was cut, in words; `compare`: the newest file has to be compared
    with the log before it is used."""

    files: int = 0
    entries: int = 0
    notes: list[str] = field(default_factory=list)
    compare: bool = False


def load_index(
    service: IndexService, files: FileSystem, *, log_start: int, log_end: int, clean: bool
) -> IndexFindings:
    """Open the files and set `next_offset`; the log holds log_start .. log_end.

    Raises CorruptStoreError if a file has not the length of the settings, StoreError if it
    cannot be written.
    """
    findings = IndexFindings()
    service.open_files()
    state = _state(service, files, findings)
    if service.newest is None:
        service.next_offset = log_start
        if state is not None and not state.file:
            service.next_offset = max(min(state.log_offset, log_end), log_start)
        elif state is not None:
            findings.notes.append(f"index file {state.file} and all others are missing")
    elif state is not None:
        _cut_to_state(service, state, log_end, findings, clean=clean)
        service.next_offset = max(service.next_offset, log_start)
    else:
        if not clean:
            service.mark_all_dirty()
        service.next_offset = log_end
        if service.newest.header.end_physical_offset >= log_end:
            findings.notes.append(f"entries above the end of the log, {log_end}, were cut")
            service.truncate(log_end)
        if not clean and service.newest is not None and service.newest.header.next_entry <= 1:
            # created just before the crash: nothing in it was durable
            findings.notes.append(f"index file {service.newest.name} is empty and is rebuilt")
            service.remake_newest(log_start)
        else:
            findings.compare = not clean
    findings.files = len(service.files)
    findings.entries = sum(file.header.next_entry - 1 for file in service.files)
    return findings


def _state(service: IndexService, files: FileSystem, findings: IndexFindings) -> IndexState | None:
    try:
        return load_index_state(files, service.state_path)
    except FormatError as error:
        findings.notes.append(f"{service.state_path} is damaged and ignored: {error}")
        return None


def _cut_to_state(
    service: IndexService, state: IndexState, log_end: int, findings: IndexFindings, *, clean: bool
) -> None:
    service.next_offset = state.log_offset
    names = [file.name for file in service.files]
    if not state.file:
        # there was no file yet, so below its offset no record has an entry
        service.next_offset = min(state.log_offset, log_end)
        _drop_later(service, state, findings)
        return
    if state.file not in names:
        # Lost with all after it; the records of the last entries may have had more of them.
        findings.notes.append(f"index file {state.file} is missing")
        while service.newest is not None and service.newest.name > state.file:
            service.drop_newest()
        newest_left = service.newest
        service.next_offset = 0
        if newest_left is not None:
            service.next_offset = newest_left.header.end_physical_offset
            service.truncate(service.next_offset)
        return
    _drop_later(service, state, findings)
    newest = service.newest
    assert newest is not None
    header = newest.header
    same = (
        header.next_entry == state.next_entry
        and header.end_timestamp == state.end_timestamp
        and header.end_physical_offset == state.end_physical_offset
    )
    if state.next_entry <= 1:
        service.drop_newest()
    elif not (clean and same):
        if not same:
            findings.notes.append(
                f"index file {newest.name}: "
                f"{counted(header.next_entry - 1, 'entry', 'entries')} cut to "
                f"{state.next_entry - 1}, the rest is rebuilt from the log"
            )
        newest.cut(state.next_entry, state.end_timestamp)
    if log_end < state.log_offset:
        findings.notes.append(f"entries above the end of the log, {log_end}, were cut")
        service.truncate(log_end)


def _drop_later(service: IndexService, state: IndexState, findings: IndexFindings) -> None:
    """Files that were made after `state` was noted."""
    while service.newest is not None and service.newest.name != state.file:
        findings.notes.append(f"index file {service.newest.name} is rebuilt from the log")
        service.drop_newest()
