"""The log of an archive, read by its URL without a node.

    manifest   [0 ───── 700)[700 ── 1000)      [1300 ──── 1900)
    read_into        ├──────────┤              whole blocks of the objects, their checksums checked
    missing          objects that were joined or deleted meanwhile: the newest manifest says where
                     the same bytes are now

A reader begins with the newest manifest and keeps to it: what is archived later is not read. Where
a newer one has other bytes, since the log was cut, or none any more, reading ends with an error.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveUnavailableError,
    ArchiveUrlError,
    ObjectMissingError,
)
from tandemlog.archive.object_store import ObjectStore, shown_url
from tandemlog.archive.open_store import open_object_store
from tandemlog.format.archive.branches import newest_first
from tandemlog.format.archive.manifest import Manifest, SegmentEntry, StateEntry, decode_manifest
from tandemlog.format.archive.object_name import LOG, MANIFESTS, ManifestName
from tandemlog.format.archive.segment_index import BLOCK_BYTES, SegmentIndex
from tandemlog.format.archive.state import TOPICS, ArchiveState
from tandemlog.format.errors import FormatError

from ..job_errors import CorruptLogError, FetchError, OptionError, StoreMissingError
from .log_end import LogEnd, Tail
from .log_files import COMMIT_LOG, LogFile, LogFiles

Answer = TypeVar("Answer")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
READ_AROUND: Final = (
    "`tandemlog backup verify` names all damaged objects; until they are put back, what is before "
    "and behind can be read (fromOffset and toOffset, --from-offset and --to-offset)"
)


def is_archive(path: str) -> bool:
    """Whether the path is that of an archive: a URL of an object store, or a folder with
    manifests and no commit log beside them. A `file:` URL was made a path before."""
    if _URL.match(path):
        return True
    if (Path(path) / COMMIT_LOG).is_dir():
        return False
    folder = Path(path) / MANIFESTS.rstrip("/")
    return folder.is_dir() and bool(
        newest_first(MANIFESTS + each.name for each in folder.iterdir())
    )


@dataclass(frozen=True)
class ArchivedLogSource:
    """The log of an archive as one manifest has it. `options` go to fsspec's file system; objects
    that cannot be read are tried again for `timeout_ms`."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    timeout_ms: int
    name: ManifestName
    content: bytes = field(repr=False)
    files: LogFiles

    @property
    def manifest(self) -> Manifest:
        return _decoded(self.name, self.content)

    def connect(self) -> "ArchivedLog":
        return ArchivedLog(_opened(self.url, self.options), self.manifest, self.timeout_ms)

    def start(self) -> int:
        """Of the oldest part of the log that is archived."""
        segments = self.manifest.segments
        return segments[0].start if segments else self.manifest.end

    def end(self) -> LogEnd:
        end = self.manifest.end
        return LogEnd(end, self.files.path_of(end), Tail.ZEROS, "the end of the archive")

    def topics(self) -> bytes:
        """The newest table of topics, as its file has it; empty if none is archived. Raises
        FetchError, CorruptLogError."""
        entry = self.manifest.state_at(self.manifest.end)
        if entry is None:
            return b""
        log = self.connect()
        try:
            return log.state(entry).tables.get(TOPICS, "").encode()
        finally:
            log.close()

    def check_complete(self, start: int = 0, end: int | None = None) -> None:
        """Raises CorruptLogError if the archive has a gap that begins in that part of the log."""
        for (_, gap), (behind, _) in pairwise(self.manifest.spans()):
            if behind > start and (end is None or gap < end):
                raise CorruptLogError(
                    self.files.path_of(gap),
                    gap,
                    f"the archive has nothing up to {behind}: that part of the log was deleted "
                    "before it was archived. Read what is before it, or behind it",
                )


def archived_log(url: str, options: Mapping[str, Any], timeout_ms: int) -> ArchivedLogSource:
    """The log of the archive at `url` as its newest manifest has it.

    Raises OptionError for no URL of an archive, StoreMissingError where nothing is archived,
    FetchError, CorruptLogError."""
    store = _opened(url, options)
    try:
        found = _retrying(timeout_ms)(newest_manifest, store)
        if found is None:
            raise StoreMissingError(
                f"{shown_url(url)} has no manifest: nothing is archived there. The files of a "
                "store are read where they are mounted, by their path"
            )
        name, manifest = found
        content = _retrying(timeout_ms)(store.get, name.key)
    except ArchiveUnavailableError as error:
        raise FetchError(f"the archive {store.url}: {error}") from error
    except (ArchiveDamagedError, ObjectMissingError) as error:
        raise CorruptLogError(store.url, 0, str(error)) from error
    finally:
        store.close()
    files = _files_of(manifest, store.url)
    return ArchivedLogSource(url, dict(options), timeout_ms, name, content, files)


def _opened(url: str, options: Mapping[str, Any]) -> ObjectStore:
    try:
        return open_object_store(url, **options)
    except ArchiveUnavailableError as error:
        raise FetchError(str(error)) from error
    except (ArchiveUrlError, TypeError) as error:
        raise OptionError(f"{shown_url(url)} cannot be opened: {error}") from error


@lru_cache(maxsize=4)
def _decoded(name: ManifestName, content: bytes) -> Manifest:
    try:
        return decode_manifest(name, content)
    except FormatError as error:
        raise CorruptLogError(name.key, 0, str(error)) from error


def _files_of(manifest: Manifest, url: str) -> LogFiles:
    """The commit log files of which something is archived. One that has a gap is as long as what
    comes before that; the last one has its full length."""
    size = manifest.file_size
    ends: dict[int, int] = {}
    for segment in manifest.segments:
        ends[segment.start - segment.start % size] = segment.end
    last = max(ends, default=0)
    folder = f"{url}/{LOG.rstrip('/')}"
    files = tuple(
        LogFile(f"{folder}/{base:020d}", base, size if base == last else end - base)
        for base, end in sorted(ends.items())
    )
    return LogFiles(folder, None, size, files)


class ArchivedLog:
    """The bytes for one task. Not for several threads."""

    def __init__(self, store: ObjectStore, manifest: Manifest, timeout_ms: int) -> None:
        self.reader = ArchiveReader(store, manifest)
        self._store = store
        self._begun = manifest
        self._timeout_ms = timeout_ms
        self._same_until = manifest.end
        self._block = memoryview(b"")
        """The last block that was read: the next window begins in it."""
        self._block_start = 0

    def read_into(self, offset: int, target: memoryview) -> int:
        """As LogBytes; no bytes where nothing is archived. Raises FetchError, CorruptLogError."""
        size = self._begun.file_size
        end = min(offset + len(target), offset - offset % size + size)
        done = 0
        while offset + done < end:
            whole = self._whole_blocks(offset + done, target[done : end - offset])
            done += whole
            if whole:
                continue
            piece = self._bytes_at(offset + done, end)
            if not len(piece):
                break
            target[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def next_data(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._store.close()

    def _whole_blocks(self, offset: int, target: memoryview) -> int:
        """Reads the whole blocks that begin at the log offset and fit in, if the store puts them
        there at once: how many bytes these are."""
        found = self.reader.manifest.covering(offset, offset + 1)
        if not found or self._same_until < self._begun.end:
            return 0
        entry = found[0]
        size = min(len(target), entry.end - offset) // BLOCK_BYTES * BLOCK_BYTES
        if not size or (offset - entry.start) % BLOCK_BYTES:
            return 0
        part = target[:size]
        try:
            is_read = self._asked(offset, lambda: self.reader.read_blocks(entry, offset, part))
        except ObjectMissingError:
            return 0  # where they are now is found by the slower way
        return size if is_read else 0

    def _bytes_at(self, offset: int, end: int) -> memoryview:
        """Bytes from the log offset on, at most up to `end`; none where none are archived."""
        if self._block_start <= offset < self._block_start + len(self._block):
            return self._block[offset - self._block_start :][: end - offset]
        if self._same_until <= offset < self._begun.end:
            raise self._changed(offset)
        try:
            return self._fetched(offset, min(end, self._same_until))
        except ObjectMissingError as missing:
            self._look_again(offset, missing)
        try:
            return self._fetched(offset, min(end, self._same_until))
        except ObjectMissingError as missing:
            raise self._damage(offset, missing) from missing

    def _fetched(self, offset: int, end: int) -> memoryview:
        """Reads the whole blocks that have these bytes, of one object."""
        found = self.reader.manifest.covering(offset, offset + 1)
        if not found:
            return memoryview(b"")
        entry = found[0]
        first, last = self.index(entry).block_bounds(offset, min(end, entry.end))
        last = min(last, entry.end)
        ((_, content),) = self._asked(offset, lambda: list(self.reader.blocks(first, last)))
        begin = (len(content) - 1) // BLOCK_BYTES * BLOCK_BYTES
        self._block = memoryview(bytes(content[begin:])) if begin else content
        self._block_start = first + begin
        return content[offset - first : end - first]

    def index(self, entry: SegmentEntry) -> SegmentIndex:
        """Of a segment of `reader.manifest`. Raises ObjectMissingError, and as read_into."""
        return self._asked(entry.start, lambda: self.reader.index(entry))

    def state(self, entry: StateEntry) -> ArchiveState:
        """Tables of `reader.manifest`; raises as read_into."""
        offset = entry.name.log_offset
        try:
            return self._asked(offset, lambda: self.reader.state(entry))
        except ObjectMissingError as missing:
            raise self._damage(offset, missing) from missing

    def _asked(self, offset: int, call: Callable[[], Answer]) -> Answer:
        try:
            return _retrying(self._timeout_ms)(call)
        except ArchiveUnavailableError as error:
            raise FetchError(
                f"bytes of the log at {offset} from {self._store.url}: {error}"
            ) from error
        except ArchiveDamagedError as error:
            raise self._damage(offset, error) from error

    def _look_again(self, offset: int, missing: ObjectMissingError) -> None:
        """An object is not there: the newest manifest has its bytes in another one, or none."""
        found = self._asked(offset, lambda: newest_manifest(self._store))
        before = self.reader.manifest
        if found is None or found[1] == before:
            raise self._damage(offset, missing) from missing
        newest = found[1]
        self._same_until = min(self._same_until, before.history.cut_against(newest.history))
        if offset >= self._same_until or not newest.covering(offset, offset + 1):
            raise self._changed(offset) from missing
        self.reader = ArchiveReader(self._store, newest)

    def _damage(self, offset: int, error: ArchiveError) -> CorruptLogError:
        return CorruptLogError(self._store.url, offset, f"{error}. {READ_AROUND}")

    def _changed(self, offset: int) -> FetchError:
        return FetchError(
            f"{self._store.url} no longer has the log at {offset} that was there when the reading "
            "began: it was pruned, or cut at a failover. Read it again"
        )


def _retrying(timeout_ms: int) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(ArchiveUnavailableError),
        stop=stop_after_delay(timeout_ms / 1000),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
