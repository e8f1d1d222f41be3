"""What a node does with memory that it has freed: kept while it works, given back when it rests.

    working   | buffers of a chunk, a batch, a column come and go, some hundred megabytes a second
    resting   | nothing put, replicated or read for a while: free pages go back to the system

Keeping it is tandemlog/memory.py's part, which has the reason.

As Python sets it, the collector of cycles looks at what is new after every 700 objects. A pull
makes thousands of slices at once, none of them in a cycle: a sixth of a busy node's time went
there. So it looks rarely, and never at what has been there since the start.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable

REST_S = 2.0
NEW_OBJECTS = 50_000
"""So many more made than gone before the collector looks; a pull has some 10,000 at once."""


def collect_rarely() -> None:
    """For a process that has loaded and opened all that it will: see the module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def give_back_freed_memory() -> None:
    """Free pages of all of malloc's arenas go back to the system, and those of cycles that nobody
    has looked for; nothing without glibc."""
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
