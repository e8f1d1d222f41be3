"""Tells the next processes what the last process that had the store open may have lost.

    last process               its end                   what may be missing
    any                        clean                     nothing
    counts only what is        not clean                 nothing
    fsynced
    counts what is written     the process alone ended   nothing: the page cache outlives it
    counts what is written     the machine ended too     what was not fsynced
    counts what is written     the disk was mounted      what was not fsynced
                               again since
    counts what is written     an fsync failed           what was not fsynced
    any                        damage cut whole records  those records
    any                        a log file is missing     what was in it

"Missing" refers to bytes that counted as stored here: they were acknowledged because this node was
part of the quorum. Only a master with async flush that has acknowledged puts counts bytes that are
merely written; a slave reports what it has fsynced. The doubt outlives any number of opens, as a
slave or by a tool, until a term begins that acts on it (ha/master/term.py), so it is written before
the open changes anything (tandemlog/session.json, checked JSON: boot_id, counts_unflushed, doubt,
lost, mount_id).

A disk that was gone for a moment (a cable, a network, `umount -f`) and is mounted again has lost
its page cache though the machine did not stop. Where the kernel names a mount, its name tells.

`lost` is more than a doubt: the log ended there, durably, and a file of it is gone. A term without
that file would use the queue offsets of acknowledged records a second time, so no term begins
before the log has reached that position again, from another node.

If this file is damaged, the doubt remains; if it is missing, the doubt remains unless the stop was
clean.
"""

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

logger = logging.getLogger(__name__)

CUT = "whole records after a damaged one were cut"
DAMAGED = "the note about the last stop is damaged"
FSYNC = "an fsync failed, and what was written since the last good one may have been acknowledged"
MACHINE = "the machine stopped before everything that may have been acknowledged was fsynced"
MOUNT = "the disk was mounted again before everything that may have been acknowledged was fsynced"


@dataclass(frozen=True, slots=True)
class Session:
    """A process that has or had the store open.

    `boot_id` names the machine's boot, `mount_id` the mounted file system; empty if not known.
    `counts_unflushed`: bytes count as held before they are fsynced. `doubt` says why bytes that
    counted as held may be missing; empty: none are. `lost`: the log offset up to which it was
    durable, 0 if it is.
    """

    boot_id: str
    counts_unflushed: bool = False
    doubt: str = ""
    lost: int = 0
    mount_id: str = ""


def next_session(
    last: Session | None,
    boot_id: str,
    *,
    clean: bool,
    cut: bool,
    fsync_failed: bool = False,
    lost: int = 0,
    mount_id: str = "",
) -> Session:
    """The session after `last` (None: not known), which stopped `clean` or not, perhaps after an
    fsync that failed; `cut`: whole records are about to be cut; `lost`: see the module. Bytes that
    counted before they were fsynced count until recovery has made them durable."""
    counted = not clean and (last is None or last.counts_unflushed)
    doubt = "" if last is None else last.doubt
    if not doubt and cut:
        doubt = CUT
    elif not doubt and counted and fsync_failed:
        doubt = FSYNC
    elif not doubt and counted and (last is None or not boot_id or last.boot_id != boot_id):
        doubt = MACHINE
    elif not doubt and counted and last is not None and last.mount_id not in ("", mount_id):
        doubt = MOUNT
    lost = max(lost, 0 if last is None else last.lost)
    return Session(boot_id, counted, doubt, lost, mount_id)


class SessionFile:
    """The session of one store on disk; every change is durable on return."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.value: Session | None = None

    def load(self) -> Session | None:
        """The last one; None if there is none."""
        data = read_small(self._files, self.path)
        if data is not None:
            try:
                self.value = _decode(data)
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("%s is damaged: %s", self.path, error)
                self.value = Session("", counts_unflushed=True, doubt=DAMAGED)
        return self.value

    def save(self, session: Session) -> None:
        if session == self.value:
            return
        write_small(self._files, self.path, encode_checked(asdict(session)))
        self.value = session

    def count_unflushed(self, counts: bool) -> None:
        """From now on bytes count as held before they are fsynced, or only then."""
        if self.value is not None:
            self.save(replace(self.value, counts_unflushed=counts))

    def forget_doubt(self) -> None:
        """Call when the doubt has been acted on."""
        if self.value is not None:
            self.save(replace(self.value, doubt=""))

    def clear_lost(self) -> None:
        """Nothing of the log is lost any more."""
        if self.value is not None and self.value.lost:
            self.save(replace(self.value, lost=0))


def _decode(data: bytes) -> Session:
    document = decode_checked(data)
    return Session(
        boot_id=str(document["boot_id"]),
        counts_unflushed=bool(document["counts_unflushed"]),
        doubt=str(document["doubt"]),
        lost=int(document.get("lost", 0)),
        mount_id=str(document.get("mount_id", "")),
    )
