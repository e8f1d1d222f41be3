"""What a node wants of its process."""

import ctypes
import os
import resource
import signal
import sys

from tandemlog.memory import keep_freed_memory

from .memory import share_one_arena

SWITCH_INTERVAL_S = 0.0005
WANTED_FILES = 1 << 20
_PR_SET_PDEATHSIG = 1


def prepare_process() -> None:
    """Short turns between threads, freed memory kept, and as many open files as may be.

    A put must not wait Python's usual 5 ms behind reput; thousands of queues have a file each.
    """
    keep_freed_memory()
    share_one_arena()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end_with_parent(parent: int) -> None:
    """Have SIGTERM sent to this process when process `parent`, which started it, is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        # it went away before the line above
        os.kill(os.getpid(), signal.SIGTERM)
