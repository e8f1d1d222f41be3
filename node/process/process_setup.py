"""What a node wants of its process."""

import ctypes
import os
import signal

from tandemlog.memory import keep_freed_memory
from tandemlog.turns import take_short_turns
from tandemlog_server.storage.disk.spare_descriptors import SPARES as SPARE_DESCRIPTORS

from .machine_bounds import SPARES, raise_open_files
from .memory_at_rest import share_one_arena

_PR_SET_PDEATHSIG = 1


def prepare_process() -> None:
    """Short turns between threads, freed memory kept, and as many open files as may be.

    A put must not wait for the end of a long turn of reput; thousands of queues have a file each.
    """
    keep_freed_memory()
    share_one_arena()
    take_short_turns()
    raise_open_files()
    SPARE_DESCRIPTORS.keep(SPARES)


def end_with_parent(parent: int) -> None:
    """Have SIGTERM sent to this process when process `parent`, which started it, is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        # it went away before the line above
        os.kill(os.getpid(), signal.SIGTERM)
