"""What is new of a queue since its last progress record."""

from tandemlog.format.lease.progress import QueueProgress

from .intervals import IntervalSet


class News:
    """`floor`: the log does not say yet where the group begins. `rows`: some rows have their
    `changed` set. `ended`: messages that are done; `errors`: those with a new text."""

    def __init__(self) -> None:
        self.floor = False
        self.rows = False
        self.ended = IntervalSet()
        self.errors: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.floor or self.rows or self.errors or len(self.ended))

    def put_back(self, stored_not: QueueProgress) -> None:
        """The record with these was not stored; rows and errors are those of the queue."""
        self.floor |= stored_not.floor is not None
        self.ended.add_runs(stored_not.ended_starts, stored_not.ended_ends)
