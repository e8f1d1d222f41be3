"""The archive, as the scrub of this node asks it: one more copy of the log.

    question ─▶ is the archived log the same up to there? ─▶ blocks of objects, each with its own
                                                             checksum ─▶ records checked as any copy

Only what the nodes of the cluster cannot settle is asked of it. The manifest is read at the first
question and again after REFRESH_S. An archive that does not answer has no copy, for now.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.errors import ArchiveError, NotArchivedError
from tandemlog.archive.object_store import ObjectStore
from tandemlog_server.storage.scrub.block_answers import ABSENT, BlockAnswer, BlockQuestion
from tandemlog_server.storage.scrub.block_check import check_given, check_next, checksum_of
from tandemlog_server.storage.scrub.scrubber import PeerError
from tandemlog_server.storage.scrub.verdicts import CopyState

REFRESH_S: Final = 60.0


class ArchivePeer:
    """See the module. One thread asks. `objects()` opens the object store, once."""

    def __init__(
        self,
        url: str,
        objects: Callable[[], ObjectStore],
        *,
        property_crc: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url` without user name and password."""
        self._name = f"the archive {url}"
        self._objects = objects
        self._property_crc = property_crc
        self._now = now
        self._store: ObjectStore | None = None
        self._reader: ArchiveReader | None = None
        self._read_at = float("-inf")

    @property
    def name(self) -> str:
        return self._name

    def ask(self, question: BlockQuestion) -> BlockAnswer:
        with self._answering():
            reader = self._newest()
            manifest = reader.manifest
            limit = min(
                question.limit, manifest.end, question.history.cut_against(manifest.history)
            )
            if not question.start < (question.end or limit) <= limit:
                return ABSENT
            try:
                return self._answer(reader, question, limit)
            except NotArchivedError:
                return ABSENT

    def fetch(self, start: int, end: int) -> bytes:
        with self._answering():
            return self._newest().read(start, end)

    def close(self) -> None:
        store, self._store, self._reader = self._store, None, None
        if store is not None:
            store.close()

    def _answer(self, reader: ArchiveReader, asked: BlockQuestion, limit: int) -> BlockAnswer:
        file_size, crcs = reader.manifest.file_size, self._property_crc
        if not asked.end:

            def read(start: int, size: int) -> bytes:
                return reader.read(start, start + size)

            block = check_next(read, asked.start, limit, file_size, property_crc=crcs)
            if block.fault:
                return BlockAnswer(CopyState.DAMAGED, fault=block.fault)
            return BlockAnswer(CopyState.WHOLE, block.end, block.checksum)
        data = reader.read(asked.start, asked.end)
        if fault := check_given(data, asked.start, file_size, property_crc=crcs):
            return BlockAnswer(CopyState.DAMAGED, fault=fault)
        return BlockAnswer(CopyState.WHOLE, asked.end, checksum_of(data))

    def _newest(self) -> ArchiveReader:
        now = self._now()
        if self._reader is None:
            if self._store is None:
                self._store = self._objects()
            self._reader = ArchiveReader.open(self._store)
        elif now >= self._read_at + REFRESH_S:
            self._reader.refresh()
        else:
            return self._reader
        self._read_at = now
        return self._reader

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Raises PeerError for what goes wrong with an archive."""
        try:
            yield
        except (ArchiveError, OSError) as error:
            raise PeerError(f"{self._name}: {error}") from error
