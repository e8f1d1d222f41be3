"""Cold reads in the node's loop: own threads, so that no other read waits for an object store.

    a round that meets an offset below the files ─▶ a turn of THREADS ─▶ the same round, cold

A caller waits for a thread as for one of the node's own (read_turns.py); one that does not get it
in time is refused as BUSY. Memory is bounded by the cache and by what so many threads hold at once.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ..access.caller import Caller
from ..pulls.read_turns import ReadTurns
from .cold_reader import ColdReader

THREADS: Final = 4
WAIT_S: Final = 30.0

_NAMES: Final = (
    "archive_read_messages_total",
    "archive_read_bytes_total",
    "archive_read_seconds_total",
    "archive_read_failures_total",
    "archive_cache_hits_total",
    "archive_cache_misses_total",
    "archive_cache_bytes",
)

Made = TypeVar("Made")


class ColdReads:
    """See the module. Belongs to the loop."""

    def __init__(self, reader: ColdReader) -> None:
        self.reader = reader
        # answers are held by the turns of the node, once they are there
        self._turns = ReadTurns(THREADS, 1 << 62, wait_s=WAIT_S)

    async def run(self, caller: Caller, work: Callable[[], Made]) -> Made:
        """What `work` makes in a thread that may wait for the archive. Raises RequestRefusedError
        if no turn came in time, and what `work` raises."""
        return await self._turns.run(caller, work)

    def close(self) -> None:
        """Wait for the reads that run; no other one begins."""
        self._turns.close()


def cold_statistics(cold: ColdReads | None) -> Mapping[str, float]:
    """By the names of metrics; zeros without cold reads."""
    values: tuple[float, ...] = (0,) * len(_NAMES)
    if cold is not None:
        reader = cold.reader
        segments, cache = reader.segments, reader.segments.cache
        values = (
            reader.messages,
            segments.moved_bytes,
            cache.seconds,
            segments.failures,
            cache.hits,
            cache.misses,
            cache.held_bytes,
        )
    return dict(zip(_NAMES, values, strict=True))
