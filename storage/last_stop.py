"""What an open makes of the stop before it, and leaves for the one after it.

    distrust   an fsync had failed: drop the page cache before anything is read
    examine    (examination.py)
    begin      note what may be missing, then lower the flag; only now may the store be changed
    recover    (recovery.py)

A crash between two steps repeats them: the flag goes down when the doubt is durable.
"""

from .config import FlushMode
from .examination import Examination
from .files import FileSystem
from .fsync_flag import FsyncFlag
from .page_cache import forget_page_cache
from .session_file import Session, SessionFile
from .store_paths import StorePaths


class LastStop:
    """The two notes of one store (session_file.py, fsync_flag.py) and their order."""

    def __init__(self, paths: StorePaths, files: FileSystem) -> None:
        self._paths = paths
        self._files = files
        self._session = SessionFile(paths.session, files)
        self._flag = FsyncFlag(paths.fsync_flag, files)
        self._fsync_failed = False

    def distrust(self) -> None:
        """Before the store is read. Raises OSError where the disk still fails."""
        self._fsync_failed = self._flag.is_raised()
        if self._fsync_failed:
            forget_page_cache(self._paths, self._files)

    def following(self, found: Examination, flush: FlushMode) -> Session:
        """The session that follows the last one by what an examination has found."""
        return Session(self._files.boot_id(), counts_unflushed=flush is FlushMode.ASYNC).following(
            self._session.load(),
            clean=found.clean,
            cut=found.cuts_records,
            fsync_failed=self._fsync_failed,
        )

    def begin(self, found: Examination, flush: FlushMode) -> None:
        """Before the store is changed; durable on return."""
        self._session.save(self.following(found, flush))
        self._flag.lower()

    @property
    def doubt(self) -> str:
        """Why bytes that counted as held may be missing; empty where none are."""
        return "" if self._session.value is None else self._session.value.doubt

    def settle(self) -> None:
        """The doubt has been acted on: forget it, durably."""
        self._session.settle()

    def fsync_failed(self) -> None:
        """For the next open, as far as the disk lets it be noted; may be called again."""
        self._flag.raise_it()
