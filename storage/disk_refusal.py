"""The error for a write that the disk refuses.

    ENOSPC, EDQUOT    DiskFullError: free some space, then it continues
    anything else     StoreReadOnlyError

A failed fsync is none of these: see FlushFailedError and decision 0007.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import DiskFullError, StoreReadOnlyError


def is_full(error: OSError) -> bool:
    """Whether the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def refusal(what: str, error: OSError) -> StoreReadOnlyError:
    """What an OSError in the way of a write means for the store."""
    if is_full(error):
        return DiskFullError(
            f"{what}: the disk is full; free some space, then the store continues by itself"
        )
    return StoreReadOnlyError(f"{what}: {error}")


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Around a call that the disk may refuse: `refusal` of its OSError."""
    try:
        yield
    except OSError as error:
        raise refusal(what, error) from error
