"""What a follower does on its store: one thread runs the work in order, another one flushes.

    Compare ─▶ read the same bytes here          Append ─▶ check the records ─▶ write
    Compared ─▶ what comes from here on is ours       flush: fdatasync ─▶ how far it is durable

Bytes are stored only behind a log that was compared to its end, so nothing here is acknowledged
that is not the broker's.
"""

import logging
from collections.abc import Callable, Sequence

from tandemlog.format.constants import Buffer
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.errors import DamagedChunkError

from ..wire.errors import BrokerError, LogsDifferError
from .comparison import BeginAt, CutAt, OwnLog, SetAside
from .session import Append, Compare, Compared, Differs, Work

logger = logging.getLogger(__name__)


class FollowStore:
    """See the module. `on_compared` is called in the thread that writes, before the first byte of a
    connection is stored."""

    def __init__(self, store: StorePort, on_compared: Callable[[], None]) -> None:
        self.store = store
        self._on_compared = on_compared
        self.compared = False
        self._start = 0
        self._intake = store.raw_intake()

    def own_log(self) -> OwnLog:
        """What is here now."""
        log = self.store.log
        return OwnLog(log.min_offset, log.wrote.value, log.file_size)

    def begin(self, start: int) -> None:
        """A new connection sends from `start` on."""
        self.compared = False
        self._start = start
        self._intake = self.store.raw_intake()

    def run(self, work: Sequence[Work]) -> bool:
        """Execute the work; whether the log is compared to its end by now. Raises LogsDifferError,
        BrokerError for bytes that are no records, and what the store raises."""
        for each in work:
            if isinstance(each, Append):
                self._append(each)
            elif isinstance(each, Compare):
                self._compare(each)
            elif isinstance(each, Compared):
                self._on_compared()
                self.compared = True
            elif isinstance(each, Differs):
                raise LogsDifferError(self._start, each.offset)
        return self.compared

    def run_and_flush(self, work: Sequence[Work]) -> tuple[bool, int]:
        """`run`, and `flush` once the log is compared: the answers of both."""
        return self.run(work), self.flush() if self.compared else 0

    def flush(self) -> int:
        """Make durable what was written; returns the log offset below which all is."""
        return self.store.flush()

    def read(self, offset: int, max_bytes: int) -> Buffer:
        return self.store.log.read(offset, max_bytes)

    def change(self, step: BeginAt | CutAt | SetAside) -> None:
        """Change the log as the comparison requires. No other thread writes meanwhile, and
        the store leads no slaves. Durable on return; raises what the store raises."""
        store, own = self.store, self.own_log()
        if isinstance(step, BeginAt):
            if own.file_size != step.file_size:
                store.adopt_commit_log_file_size(step.file_size)
            if store.log.wrote.value != step.offset:
                store.reset(step.offset)
            return
        if isinstance(step, CutAt):
            copy = store.copy_aside(step.offset, own.end)
            logger.warning(
                "cutting %d bytes of the log, %d..%d; they are kept in %s: %s",
                own.end - step.offset, step.offset, own.end, copy, step.reason,
            )  # fmt: skip
            store.truncate(step.offset)
            return
        logger.warning(
            "setting the whole log aside, %d..%d, and beginning at %d: %s",
            own.begin, own.end, step.offset, step.reason,
        )  # fmt: skip
        store.reset(step.offset)

    def _append(self, piece: Append) -> None:
        if not self.compared:
            raise ProtocolError(f"bytes came to be stored at {piece.offset} before the comparison")
        try:
            self._intake.take(piece.offset, piece.data)
        except DamagedChunkError as error:
            raise BrokerError(
                f"{error}: the broker sent bytes that are no record, and is asked for them again. "
                "If that continues, its own log is damaged there: tandemlog verify shows it on a "
                "copy of its store"
            ) from error

    def _compare(self, piece: Compare) -> None:
        mine = bytes(self.store.log.read(piece.offset, len(piece.data)))
        if mine == piece.data:
            return
        same = next(
            (at for at, (own, theirs) in enumerate(zip(mine, piece.data, strict=False))
             if own != theirs),
            min(len(mine), len(piece.data)),
        )  # fmt: skip
        raise LogsDifferError(self._start, piece.offset + same)
