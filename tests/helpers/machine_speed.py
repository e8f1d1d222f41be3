"""How much slower this machine is than the one on which limits in milliseconds were set.

A limit says what a piece of work may take there. On a machine of half the speed the same work takes
twice as long, and that is no defect.
"""

import functools
import time

REFERENCE_MS = 12.0
"""What `_work` takes on the machine of the limits."""
FRESH_REFERENCE_MS = 24.0
"""The same for `_fresh_memory`: a virtual machine may compute as fast, and take three times as long
to give a process a page that it had not."""
TRIES = 20


@functools.cache
def slowness() -> float:
    """1 on the machine of the limits and on faster ones; the best of TRIES, so that other work on
    the machine does not count."""
    return max(1.0, min(_work() for _ in range(TRIES)) / REFERENCE_MS)


@functools.cache
def slowness_of_fresh_memory() -> float:
    """As `slowness`, for what takes much new memory at once."""
    return max(1.0, min(_fresh_memory() for _ in range(TRIES)) / FRESH_REFERENCE_MS)


def _fresh_memory() -> float:
    """Milliseconds of processor time for two times 32 MiB."""
    begin = time.thread_time()
    bytes(bytearray(32 << 20))
    return (time.thread_time() - begin) * 1e3


def _work() -> float:
    """Milliseconds of processor time."""
    begin = time.thread_time()
    table = {}
    for number in range(100_000):
        table[number & 1023] = str(number)
    return (time.thread_time() - begin) * 1e3
