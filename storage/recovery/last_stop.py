"""What an open makes of the stop before it, and leaves for the one after it.

    page cache   dropped before anything is read if an fsync had failed, or may have, as the stop
                 was not clean (then an interrupted move is finished: set_aside.py)
    analyze      (analysis.py)
    note_open    note what may be missing, then lower the flag; only now may the store be changed
    recover      (recovery.py)
    flushed      all of the log is durable: nothing that counted as held can be missing any more

While a master counts bytes that are not fsynced, a note tells it. It is taken back when its term
has ended and all is flushed, and for a rest in which it takes nothing: the next put writes it again
before it is stored, so at no moment does a byte count that the note does not cover.

A crash between two steps repeats them: the flag goes down when the doubt is durable, and what
counted as held before it was fsynced counts on until recovery has fsynced it.
"""

import threading

from ..disk.file_system import FileSystem
from ..errors import FlushFailedError, StoreError
from ..log.commit_log import CommitLog
from ..state_files.fsync_flag import FsyncFlag
from ..state_files.session_file import Session, SessionFile, next_session
from ..store_paths import StorePaths
from .analysis import Analysis
from .page_cache import forget_page_cache


class LastStop:
    """The two notes of one store (session_file.py, fsync_flag.py) and their order."""

    def __init__(self, paths: StorePaths, files: FileSystem) -> None:
        self._paths = paths
        self._files = files
        self._session = SessionFile(paths.session, files)
        self._flag = FsyncFlag(paths.fsync_flag, files)
        self._counts = False
        self.rests = False
        """Whether bytes of the next put would count before they are fsynced, and the note does not
        tell it now."""

    @property
    def fsync_failed(self) -> bool:
        """Whether the page cache may show what the disk does not hold."""
        return self._flag.is_raised()

    def drop_page_cache_if_needed(self, *, clean: bool) -> None:
        """Before the store is read. Raises OSError if the disk still fails."""
        if self.fsync_failed or not clean:
            forget_page_cache(self._paths, self._files, fsync_failed=self.fsync_failed)

    def next_session(self, analysis: Analysis) -> Session:
        """The session that follows the last one by what an examination has found."""
        last = self._session.load()
        # a store that another program wrote has promised nothing
        foreign = last is None and analysis.point is None
        return next_session(
            last,
            self._files.boot_id(),
            clean=analysis.clean or foreign,
            cut=analysis.cuts_records,
            fsync_failed=self.fsync_failed,
            lost=analysis.lost,
        )

    def note_open(self, analysis: Analysis) -> None:
        """Before the store is changed; durable on return."""
        self._session.save(self.next_session(analysis))
        self._flag.lower()

    def flushed(self) -> None:
        """All of the log is durable, and nothing is written meanwhile."""
        self._session.count_unflushed(False)
        self.rests = self._counts

    def count_unflushed(self) -> None:
        """From now on bytes count as held before they are fsynced; durable on return."""
        self._session.count_unflushed(True)
        self._counts, self.rests = True, False

    def count_only_flushed(self) -> None:
        """What is written from now on counts once it is fsynced. The note stays until `flushed`."""
        self._counts = self.rests = False

    @property
    def doubt(self) -> str:
        """Why bytes that counted as held may be missing; empty if none are."""
        return "" if self._session.value is None else self._session.value.doubt

    def check_lost(self, end: int) -> None:
        """Whether the log, which is durable up to `end`, has come to where it was before files of
        it were lost. Raises StoreError if it has not."""
        session = self._session.value
        if session is None or not session.lost:
            return
        if session.lost > end:
            raise StoreError(
                f"the log was durable up to {session.lost} and ends at {end} since a file of "
                "it is missing: this node cannot lead. Restore the file, or let this node "
                f"follow one that has the log; if no node has it, remove {self._session.path} "
                "to continue without what was in it, whose queue offsets are given again"
            )
        self._session.clear_lost()

    def start_over(self) -> None:
        """The log is another node's from now on, whole or cut to what that says."""
        self._session.clear_lost()

    def forget_doubt(self) -> None:
        """The doubt has been acted on: forget it, durably."""
        self._session.forget_doubt()

    def note_failed_fsync(self) -> None:
        """For the next open, as far as the disk lets it be noted; may be called again."""
        self._flag.raise_it()


class FailureNote:
    """A failed fsync is noted at once, so that the next open does not trust what is cached.

    Listens to the log; `apart`: save in a thread of its own, once the store is started.
    """

    def __init__(self, log: CommitLog, last_stop: LastStop) -> None:
        self.apart = False
        self._log = log
        self._last_stop = last_stop
        log.flushed.listen(self._heard)

    def save(self) -> None:
        """Durable on return if an fsync has failed. Again as long as the disk does not take it."""
        if isinstance(self._log.failure, FlushFailedError):
            self._last_stop.note_failed_fsync()

    def _heard(self) -> None:
        """The thread that met it holds the log's locks and has others to tell, and a disk in
        trouble may take minutes for a byte."""
        if self._log.failure is None:
            return
        if self.apart:
            threading.Thread(target=self.save, name="fsync-flag", daemon=True).start()
        else:
            self.save()
