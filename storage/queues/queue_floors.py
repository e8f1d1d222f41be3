"""Numbers that the log no longer contains, and that no queue may use a second time.

    log       |begin ................................ end|
    queue q    no record of it at all                       begins:  q ended at 10, all expired
    queue r    [r0][r1][xx]  r2 is damaged                  known:   r ended at 3 before it had to
                                                                     be rebuilt

Both are floors: however little the log contains, the queue does not end below them. If the log has
more, or something else, the log is right.

    begins   a queue's number at the begin of the log, from the node that had the log before that
             (queue_begins.py); true as long as the log begins there or later
    known    the end of a queue while it is damaged; dropped when dispatched log is truncated: the
             records may have been there
    held     which numbers a damaged queue had, while `known` is kept: a record with another number
             is doubted (number_doubts.py)
"""

from collections.abc import Iterable

from .number_doubts import HeldNumbers


class QueueFloors:
    """See the module. Queues are named by their dense index."""

    def __init__(self) -> None:
        self.begins: dict[int, int] = {}
        self.held: dict[int, HeldNumbers] = {}
        self._known: dict[int, int] = {}

    def of(self, dense: int) -> int:
        """The least end of the queue; 0 if nothing is known."""
        return max(self.begins.get(dense, 0), self._known.get(dense, 0))

    def keep(self, dense: int, end: int) -> None:
        """The queue ends at `end`, and its units are about to be removed."""
        if end > self.of(dense):
            self._known[dense] = end

    def keep_held(self, dense: int, first: int, end: int, log_offset: int) -> None:
        """The queue has the numbers `first` .. `end`-1 of the records below `log_offset`, and its
        units are about to be removed."""
        self.held[dense] = HeldNumbers(first, end, log_offset)

    def contradicted(self, dense: int, queue_offset: int) -> None:
        """The log has a new record of that number for the queue."""
        self._drop(dense)
        if self.begins.get(dense, 0) > queue_offset:
            del self.begins[dense]

    def whole(self, queues: Iterable[int]) -> None:
        """These queues have their ends again."""
        for dense in queues:
            self._drop(dense)

    def cut(self) -> None:
        """Dispatched records were cut from the log."""
        self._known.clear()
        self.held.clear()

    def forget(self, queues: Iterable[int]) -> None:
        for dense in queues:
            self.begins.pop(dense, None)
            self._drop(dense)

    def clear(self) -> None:
        self.begins.clear()
        self.cut()

    def _drop(self, dense: int) -> None:
        self._known.pop(dense, None)
        self.held.pop(dense, None)
