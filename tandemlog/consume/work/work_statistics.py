"""What a work queue's consumer has done: numbers for `statistics()`."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WorkStatistics:
    """Counts since the begin, in messages. `received`; of these `redelivered` (second attempt or
    later). `acked`, `retried`, `rejected` and `released`: what the node has confirmed. `lost`:
    their lease ended before that, so they come again, and what was done counts for nothing.
    `dropped`: the program forgot them, and they come again when their lease ends. `failed`: of a
    handler, how often it raised. `waiting`: received and not delivered now, `in_progress`:
    delivered and not settled, `unconfirmed`: settled, and the node has not said yes."""

    received: int = 0
    redelivered: int = 0
    acked: int = 0
    retried: int = 0
    rejected: int = 0
    released: int = 0
    lost: int = 0
    dropped: int = 0
    failed: int = 0
    waiting: int = 0
    in_progress: int = 0
    unconfirmed: int = 0


class WorkCounters:
    """The counts of one consumer; its event loop counts, any thread may look."""

    def __init__(self) -> None:
        self.received = 0
        self.redelivered = 0
        self.acked = 0
        self.retried = 0
        self.rejected = 0
        self.released = 0
        self.lost = 0
        self.dropped = 0
        self.failed = 0

    def statistics(self, *, waiting: int, in_progress: int, unconfirmed: int) -> WorkStatistics:
        return WorkStatistics(
            **vars(self), waiting=waiting, in_progress=in_progress, unconfirmed=unconfirmed
        )


assert set(vars(WorkCounters())) < {each.name for each in fields(WorkStatistics)}
