"""Short turns between the threads of a process, for a program that computes while it sends.

A thread that waits for Python's lock gets it at the end of the turn of the one that computes: after
5 ms, as Python is set. A client works in threads of its own: each time one of them wakes, and each
time it comes back from a call of the kernel, it waits for such an end, some ten times for one
request. With turns of half a millisecond it waits a tenth of that. Shorter ones shorten it further,
but a node whose threads are all busy would then spend its time on changing turns.

This affects the whole process, so each program decides for itself: nodes, `tandemlog bench` and
`tandemlog pull` call it; a library that imports tandemlog should not.
"""

import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005


def take_short_turns() -> None:
    """Threads of this process that compute take turns of half a millisecond."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
