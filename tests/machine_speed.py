"""How much slower this machine is than the one on which limits in milliseconds were set.

A limit says what a piece of work may take there. On a machine of half the speed the same work takes
twice as long, and that is no defect.
"""

import functools
import time

REFERENCE_MS = 12.0
"""What `_work` takes on the machine of the limits."""
TRIES = 20


@functools.cache
def slowness() -> float:
    """1 on the machine of the limits and on faster ones; the best of TRIES, so that other work on
    the machine does not count."""
    return max(1.0, min(_work() for _ in range(TRIES)) / REFERENCE_MS)


def _work() -> float:
    """Milliseconds of processor time."""
    begin = time.thread_time()
    table = {}
    for number in range(100_000):
        table[number & 1023] = str(number)
    return (time.thread_time() - begin) * 1e3
