"""What an open concludes from the last stop, and notes for the next open.

    page cache   dropped before anything is read if an fsync had failed, or may have, as the stop
                 was not clean (then an interrupted move is finished: set_aside.py)
    analyze      (analysis.py)
    note_open    note what may be missing, then lower the flag; only now may the store be changed
    recover      (recovery.py)
    flushed      all of the log is durable: nothing that counted as held can be missing any more

While a master counts bytes that are not fsynced, a note records it. The note is withdrawn when the
term has ended and all is flushed, and while no puts come: the next put writes it again before it is
stored, so the note always covers every byte that counts.

A crash between two steps repeats them: the flag is lowered when the doubt is durable, and bytes
that counted before they were fsynced count until recovery has fsynced them.
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
        say so now."""

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
        # a store that another program wrote has acknowledged nothing
        foreign = last is None and analysis.point is None
        return next_session(
            last,
            self._files.boot_id(),
            clean=analysis.clean or foreign,
            cut=analysis.cuts_records,
            fsync_failed=self.fsync_failed,
            lost=analysis.lost,
            mount_id=self._files.mount_id(self._paths.commit_log),
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
        """From now on bytes count once they are fsynced. The note stays until `flushed`."""
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
        """The log is another node's from now on, whole or cut as that one says."""
        self._session.clear_lost()

    def forget_doubt(self) -> None:
        """Forget the doubt, durably, once it has been acted on."""
        self._session.forget_doubt()

    def note_failed_fsync(self) -> None:
        """Note it for the next open, as far as the disk allows; may be called again."""
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
        """Durable on return if an fsync has failed; to be called again while the disk refuses."""
        if isinstance(self._log.failure, FlushFailedError):
            self._last_stop.note_failed_fsync()

    def _heard(self) -> None:
        """In the thread that met the failure: it holds the log's locks, others wait for it, and a
        failing disk may take minutes for a byte."""
        if self._log.failure is None:
            return
        if self.apart:
            threading.Thread(target=self.save, name="fsync-flag", daemon=True).start()
        else:
            self.save()
