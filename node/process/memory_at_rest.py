"""Freed memory of a node: kept while it works, returned to the system when it rests.

    working   | buffers of a chunk, a batch, a column come and go, some hundred megabytes a second
    resting   | nothing put, replicated or read for a while: free pages go back to the system

Keeping it is tandemlog/memory.py's part, which has the reason.

glibc gives threads arenas of their own, and `malloc_trim` skips what is free at the end of each: it
goes back only by itself, above the trim threshold, which none of these arenas can reach. So every
thread that had ever built one large response would keep that much memory forever. A node has one
arena for all threads instead, which `malloc_trim` empties: buffers are few and large, and small
ones come from the threads' caches. All that is free is then in one place, so more of it may be kept
while the node works.

By default, Python's garbage collector examines new objects after every 700 allocations. A pull
creates thousands of slices at once, none of them in a cycle: this took a sixth of a busy node's
time. So the collector runs rarely, and never examines objects from the start of the process.
"""

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_GROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
TRIM_THRESHOLD_BYTES: Final = 256 << 20
REST_S = 5.0
"""Longer than the pause between bursts: with 2 s, bursts every two seconds cost a tenth more, for
pages that had gone and came back."""
NEW_OBJECTS = 50_000
"""The collector runs after this many more objects were created than freed; a pull has about 10,000
at once."""


def machine_memory_bytes() -> int:
    """All that this machine has, or the control group of this process may have of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _GROUP_LIMITS:
        with suppress(OSError, ValueError):
            whole = min(whole, int(Path(path).read_text(encoding="ascii")))
    return whole


def share_one_arena() -> None:
    """For the start of a process, before it has threads; nothing without glibc. Up to 256 MiB of
    unused memory stay until the node rests."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


def collect_rarely() -> None:
    """For a process that has loaded and opened all that it will: see the module. Nothing is
    collected first: loading leaves about 900 objects unreachable, and to find them takes 35 ms, in
    which no put is taken."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def give_back_freed_memory() -> None:
    """Return free pages to the system, including those of uncollected cycles: all of them after
    `share_one_arena`. Nothing without glibc."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def give_back_at_rest(
    activity: Callable[[], int],
    *,
    rest_s: float = REST_S,
    give_back: Callable[[], None] = give_back_freed_memory,
) -> None:
    """Until cancelled: give memory back once after each time of work, when the number that
    `activity` answers has stood still for `rest_s`."""
    seen, given_back = activity(), True
    while True:
        await asyncio.sleep(rest_s)
        now = activity()
        if now != seen:
            seen, given_back = now, False
        elif not given_back:
            given_back = True
            await asyncio.to_thread(give_back)
