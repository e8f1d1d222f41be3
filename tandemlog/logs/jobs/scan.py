"""The records of a log in its order, read by several threads at a time.

    spans     | 1 | 2 | 3 | 4 | 5 | 6 | ...       of about `piece_bytes`, in the order of the log
    readers     ▲   ▲   ▲   ▲                     each reads a span, window by window
    windows     ▣▣  ▣▣  ▣▣  ▣▣                    at most WINDOWS_AHEAD of each wait to be taken
    answers   1 ▣▣▣▣, then those of 2, ...

So the memory is that of `readers` spans: a buffer and WINDOWS_AHEAD windows each, whatever the size
of the log. Reads of an object store overlap, and so does what needs no GIL: checksums, copies.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ..job_errors import CorruptLogError, OnCorruption, OptionError
from ..reading.archived_spans import planned, wanted_parts
from ..reading.damaged_record import lenient_record, record_text
from ..reading.log_bytes import LogBytes
from ..reading.log_source import LogSource
from ..reading.log_spans import Span
from ..reading.selection import Selection
from ..reading.span_scan import DamagedPiece, Piece, SpanScan

READERS: Final = 4
PIECE_BYTES: Final = 32 << 20
WINDOW_BYTES: Final = 4 << 20
WINDOWS_AHEAD: Final = 2
_WAIT_S: Final = 0.1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Records of `selection` that begin from the log offset `start` up to `end` (0: the log's
    end); what happens at bytes that are no record; how many threads read pieces of which size."""

    selection: Selection = field(default_factory=Selection)
    start: int = 0
    end: int = 0
    on_corruption: OnCorruption = OnCorruption.FAIL
    readers: int = READERS
    piece_bytes: int = PIECE_BYTES


@dataclass(frozen=True, slots=True)
class Damage:
    """Log offsets start .. end that hold no record, and why, as a sentence."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Ended:
    """No more windows of a span; `error`: why not, if something went wrong."""

    error: BaseException | None = None


def scan(
    source: LogSource,
    options: ScanOptions,
    work: Callable[[Piece], Answer],
    damaged: Callable[[Damage], None] = lambda damage: None,
) -> Generator[Answer, None, None]:
    """work(piece) of every window with records that are wanted, in the order of the log; it is
    called in the reading threads, and what it returns must not refer to the piece. `damaged` is
    told of damage, in the thread of the caller, unless that ends the scan.

    Raises OptionError for offsets that the log has not, CorruptLogError for damage with
    OnCorruption.FAIL, FetchError, OSError."""
    if options.on_corruption is OnCorruption.FAIL:
        source.check_complete(options.start, options.end or None)
    end = source.end().offset
    if options.start > end:
        raise OptionError(f"the log ends at {end}, before {options.start}")
    start, end = max(source.start(), options.start), min(options.end or end, end)
    if start >= end:
        return
    groups = planned(source, start, end, options.piece_bytes, 1, options.selection)
    run = _Run(source, options, work)
    try:
        for answer in run.answers([span for group in groups for span in group]):
            if isinstance(answer, Damage):
                damaged(answer)
            else:
                yield answer
    finally:
        run.close()


class _Run(Generic[Answer]):
    def __init__(
        self, source: LogSource, options: ScanOptions, work: Callable[[Piece], Answer]
    ) -> None:
        self._source = source
        self._options = options
        self._work = work
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(options.readers, "tandemlog-scan")
        self._logs: queue.SimpleQueue[LogBytes] = queue.SimpleQueue()

    def answers(self, spans: Sequence[Span]) -> Iterator[Answer | Damage]:
        ahead: deque[tuple[Future[None], queue.Queue[Answer | Damage | _Ended]]] = deque()
        for position in range(len(spans) + self._options.readers):
            if position < len(spans):
                windows: queue.Queue[Answer | Damage | _Ended] = queue.Queue(WINDOWS_AHEAD)
                ahead.append((self._threads.submit(self._read, spans[position], windows), windows))
            if position >= self._options.readers - 1 and ahead:
                yield from self._windows(ahead.popleft()[1])

    def _windows(
        self, windows: "queue.Queue[Answer | Damage | _Ended]"
    ) -> Iterator[Answer | Damage]:
        while True:
            answer = windows.get()
            if isinstance(answer, _Ended):
                if answer.error is not None:
                    raise answer.error
                return
            yield answer

    def close(self) -> None:
        """Ends the threads, which may be in the middle of a span."""
        self._stop.set()
        self._threads.shutdown(cancel_futures=True)
        while not self._logs.empty():
            self._logs.get().close()

    def _read(self, span: Span, windows: "queue.Queue[Answer | Damage | _Ended]") -> None:
        """One span, in a thread. A log is used by one thread at a time."""
        try:
            log = self._logs.get_nowait()
        except queue.Empty:
            log = None
        try:
            log = self._source.connect() if log is None else log
            for answer in self._parts(log, span):
                self._put(windows, answer)
            self._put(windows, _Ended())
        except _StoppedError:
            pass
        except BaseException as error:
            self._put(windows, _Ended(error))
        finally:
            if log is not None:
                self._logs.put(log)

    def _put(
        self,
        windows: "queue.Queue[Answer | Damage | _Ended]",
        answer: Answer | Damage | _Ended,
    ) -> None:
        while not self._stop.is_set():
            try:
                windows.put(answer, timeout=_WAIT_S)
            except queue.Full:
                continue
            return
        raise _StoppedError

    def _parts(self, log: LogBytes, span: Span) -> Iterator[Answer | Damage]:
        selection = self._options.selection
        for part in wanted_parts(log, span, selection):
            for piece in SpanScan(log, part, window_bytes=WINDOW_BYTES):
                if isinstance(piece, DamagedPiece):
                    yield self._damage(log, part, piece)
                    continue
                chosen = selection.of(piece)
                if chosen.count:
                    yield self._work(chosen)

    def _damage(self, log: LogBytes, span: Span, damage: DamagedPiece) -> Damage:
        record = lenient_record(log, damage.start, span.file_end)
        reason = f"{record_text(record)}: {damage.reason}"
        path = self._source.files.path_of(damage.start)
        if self._options.on_corruption is OnCorruption.FAIL:
            raise CorruptLogError(path, damage.start, reason)
        return Damage(damage.start, damage.end, f"{path}: offset {damage.start}: {reason}")


class _StoppedError(Exception):
    """The caller takes no more windows."""
