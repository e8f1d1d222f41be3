"""The error for a write that the disk refuses.

    ENOSPC, EDQUOT    DiskFullError: free some space, then it continues
    EMFILE, ENFILE    StoreBusyError: no descriptor is free now; the disk may be fine
    anything else     StoreReadOnlyError

A failed fsync is different: see FlushFailedError and decision 0007.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import DiskFullError, StoreBusyError, StoreError, StoreReadOnlyError


def is_full(error: OSError) -> bool:
    """Whether the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_crowded(error: OSError) -> bool:
    """Whether a file could not be opened because this process, or this machine, has no descriptor
    left. Only an open fails so: nothing was written, and no fsync was tried."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def refusal(what: str, error: OSError) -> StoreError:
    """What an OSError in the way of a write means for the store."""
    if is_crowded(error):
        return crowded(what, error)
    if is_full(error):
        return DiskFullError(
            f"{what}: the disk is full; free some space, then the store continues by itself"
        )
    return StoreReadOnlyError(f"{what}: {error}")


def crowded(what: str, error: OSError) -> StoreBusyError:
    """For an error that `is_crowded`."""
    whose = "this process" if error.errno == errno.EMFILE else "this machine"
    return StoreBusyError(
        f"{what}: {whose} has no file descriptor left; it is tried again. If this lasts, raise the "
        "limit of open files (ulimit -n, LimitNOFILE of systemd)"
    )


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Around a call that the disk may refuse: `refusal` of its OSError."""
    try:
        yield
    except OSError as error:
        raise refusal(what, error) from error
