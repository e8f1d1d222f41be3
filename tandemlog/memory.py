"""Keeping freed memory, for a process that receives or sends hundreds of megabytes a second.

glibc maps a buffer of a megabyte again each time and gives it back when it is freed, so that the
kernel has to clear every page of it again. A client that follows a topic as fast as it can spends
a fifth of its time there, a master with one slave a tenth. Kept pages cost nothing but memory that
such a process needs again at once.

This affects the whole process, so each program decides for itself: nodes and `tandemlog pull` call
it; a library that imports tandemlog should not.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD_BYTES: Final = 32 << 20
TRIM_THRESHOLD_BYTES: Final = 64 << 20


def keep_freed_memory() -> None:
    """Let malloc keep freed buffers of up to 32 MiB; does nothing without glibc. Each of malloc's
    arenas keeps up to 64 MiB that are not in use."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
