"""The archiver of a node: one thread, one action after another, at a bounded rate.

    every node      looks at the manifests once a minute: up to where its log is needed
    one of them     archives: the first slave in sync, by its name, else the master
    any other       if the archive has stood still for a minute, and the log has not

Which of them it is need not be agreed on: two do double work, and no harm (decisions/0076). In the
thread are, at a time, one segment and its index, so memory is bounded by `segment_bytes`. A stop
archives what is confirmed, as far as the time for a stop allows.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from tandemlog.archive.errors import ArchiveUrlError
from tandemlog.archive.object_store import ObjectStore
from tandemlog.archive.open_store import open_object_store
from tandemlog.format.archive.manifest import Manifest

from ...storage.archiving.actions import ArchiverConfig
from ...storage.archiving.archiver import Archiver
from ...storage.errors import StoreClosedError, StoreError
from ...storage.message_store import MessageStore
from ...storage.token_bucket import TokenBucket
from ..settings.archive_section import ArchiveSection
from ..settings.config_error import ConfigError
from .archive_worker import ArchiveWorker
from .cold_reader import ColdReader

logger = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 1.0
AFTER_AN_ERROR_S: Final = 10.0
STOP_S: Final = 5.0
DISPATCH_S: Final = 0.02


class ArchiveService:
    """See the module. `is_chosen` is set by the owner: whether this node is the one to archive."""

    is_chosen = False

    def __init__(
        self,
        store: MessageStore,
        section: ArchiveSection,
        node_id: str,
        *,
        objects: ObjectStore | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError for a URL that names no place for an archive."""
        self._store = store
        self._hold_bytes = section.hold_bytes
        self._now = now
        self._stopped = threading.Event()
        self._ends_at: float | None = None
        self._bucket = TokenBucket(section.bytes_per_s, now()) if section.bytes_per_s else None
        try:
            self._objects = open_object_store(section.url) if objects is None else objects
        except ArchiveUrlError as error:
            raise ConfigError(f"archive.url: {error}") from error
        config = ArchiverConfig(
            interval_s=section.interval_ms / 1000, segment_bytes=section.segment_bytes
        )
        self.archiver = Archiver(node_id, config, store.clock.now_ms)
        self.worker = ArchiveWorker(store, self._objects, self.archiver, self._spend)
        self.cold: ColdReader | None = None
        if section.cold_reads:
            self.cold = ColdReader(store, self._objects, section.cold_cache_bytes, self._manifest)
        self._failure = ""
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    @property
    def url(self) -> str:
        """Without user name and password."""
        return self._objects.url

    def start(self) -> None:
        self._store.hold_log(self.keep_from)
        self._thread.start()

    def close(self) -> None:
        """Archive what is confirmed, for STOP_S at most, and end the thread."""
        self._ends_at = self._now() + STOP_S
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S + LONGEST_WAIT_S)
        self._store.hold_log(None)
        self._objects.close()

    # --- what others ask; any thread

    def keep_from(self) -> int:
        """The log offset from which on retention keeps the log for the archive."""
        return max(self.archiver.archived_end, self._store.confirmed.value - self._hold_bytes)

    def faults(self) -> list[str]:
        """What is wrong with the archive, of which this node or its operator should know."""
        archiver, found = self.archiver, []
        if reason := self._failure or archiver.fault:
            found.append(f"the archive {self.url} gets nothing: {reason}")
        if archiver.gap is not None:
            begin, end = archiver.gap
            found.append(
                f"the archive {self.url} lacks the log from {begin} to {end}: retention deleted "
                "it before it was archived (archive.hold_bytes)"
            )
        return found

    def statistics(self) -> Mapping[str, float]:
        """By the names of metrics."""
        archiver, end = self.archiver, self._store.confirmed.value
        return {
            "archive_end_offset": archiver.archived_end,
            "archive_behind_bytes": max(0, end - archiver.archived_end),
            "archive_working": archiver.is_working,
            "archive_failed": bool(self._failure or archiver.fault),
            "archive_put_bytes_total": self.worker.uploaded_bytes,
        }

    # --- the thread

    def _run(self) -> None:
        while True:
            ends_at = self._ends_at
            try:
                until = self.worker.step(
                    self._now(), is_chosen=self.is_chosen, hurry=ends_at is not None
                )
                self._failure = ""
            except StoreClosedError:
                return
            except StoreError as error:
                self._failure = str(error)
                until = self._now() + AFTER_AN_ERROR_S
            except Exception as error:
                # an error of ours, or of a library: the store is not to suffer from it
                logger.exception("the archiver failed, and tries again")
                self._failure = f"{type(error).__name__}: {error}"
                until = self._now() + AFTER_AN_ERROR_S
            self._say_fault()
            if ends_at is None:
                if until is not None:
                    self._stopped.wait(max(0.0, min(until - self._now(), LONGEST_WAIT_S)))
            elif self._is_done() or self._now() >= ends_at:
                return
            elif until is not None:
                time.sleep(DISPATCH_S)  # what is confirmed is dispatched in a moment

    def _manifest(self) -> Manifest | None:
        newest = self.archiver.newest
        return None if newest is None else newest[1]

    def _is_done(self) -> bool:
        """At a stop: all is archived, or nothing can be."""
        archiver, store = self.archiver, self._store
        is_stuck = not archiver.is_working or bool(archiver.fault or self._failure)
        return is_stuck or archiver.archived_end >= store.confirmed.value

    def _spend(self, size: int) -> None:
        if self._bucket is not None and self._ends_at is None:
            self._stopped.wait(self._bucket.spend(size, self._now()))

    def _say_fault(self) -> None:
        """A fault once, and its end."""
        fault = self._failure or self.archiver.fault
        if fault == self._fault:
            return
        if fault:
            logger.warning("the archive %s gets nothing: %s", self.url, fault)
        else:
            logger.info("the archive %s continues at %d", self.url, self.archiver.archived_end)
        self._fault = fault
