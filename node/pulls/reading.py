"""What a pull wants of the queues, and what one reading of them gave."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from tandemlog.format.filter.expression import Condition
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetResult

from ..access.caller import Caller

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Bytes of one answer; milliseconds of the longest wait; how many may wait; bytes behind the
    end of the log from which on the answer suggests a slave."""

    max_bytes: int
    max_wait_ms: int
    long_polls: int
    far_behind_bytes: int = 1 << 62


class Place(Protocol):
    """A queue, and the offset from which it is to be read."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...


class Gets(Protocol):
    """What a round reads with: a store's reader, or one that reads the archive too."""

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
        condition: Condition | None = None,
        /,
    ) -> GetResult: ...


class ColdBegin(Protocol):
    """The number of a queue's first message in the archive, and its store time (ms)."""

    @property
    def number(self) -> int: ...
    @property
    def time_ms(self) -> int: ...


class ColdGets(Gets, Protocol):
    """See node/archive/cold_reader.py."""

    def floor(self) -> int: ...
    def may_have_missed(self, result: GetResult, floor: int, /) -> bool: ...
    def may_be_older(self, topic: str, queue_id: int, found: int, /) -> bool: ...
    def search_offset(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary, /
    ) -> int: ...
    def begins(
        self, queues: Iterable[tuple[str, int]], /
    ) -> Mapping[tuple[str, int], ColdBegin]: ...


class Cold(Protocol):
    """Reads of what the files do not have any more, in threads of their own."""

    @property
    def reader(self) -> ColdGets: ...
    async def run(self, caller: Caller, work: Callable[[], Made]) -> Made: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for. 0 messages or bytes means as many as the node gives; no hashes means
    every tag; `filter` is a text for `tandemlog.format.filter`. `behind_wait_s`: see the module."""

    places: Sequence[Place]
    group: str = ""
    max_messages: int = 0
    max_bytes: int = 0
    wait_ms: int = 0
    tag_hashes: frozenset[int] = frozenset()
    filter: str = ""
    behind_wait_s: float = 0.0

    @property
    def narrow(self) -> bool:
        """Whether it may leave messages out."""
        return bool(self.tag_hashes or self.filter)


@dataclass(slots=True)
class Position:
    """Where one queue of a request is read next."""

    index: int
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class QueueRead:
    """What a get of the queue at `index` of the request returned. `next_offset` is where its reader
    continues; `beyond`: the queue ended before the position."""

    index: int
    result: GetResult
    next_offset: int
    beyond: bool


@dataclass(slots=True)
class Reading:
    """What a round has read, of the log with this epoch and term. `filtered`: a filter of
    properties chose. `dispatched`: a queue that ends before its place has all that was confirmed
    when it was looked at first."""

    log_epoch: int
    term_id: int
    filtered: bool
    on_slave: bool
    queues: list[QueueRead] = field(default_factory=list)
    far_behind: bool = False
    dispatched: bool = True


Encode: TypeAlias = Callable[[Reading], tuple[Made, int]]
"""What a door makes of a reading, and how many bytes that is. Runs in a reader thread."""
