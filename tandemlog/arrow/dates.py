"""Which times of records are dates.

A store time is any eight bytes: one flipped bit makes a year of six digits, which neither a
date in Python nor Arrow's microseconds can hold. Such a record counts like any other, but it has
no date: null in columns of times, and no day or hour to be sorted under.
"""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NO_DATE = -(1 << 31)
"""Instead of the hour or day of a time that is not a date."""
_FIRST_MS = -62_135_596_800_000 + DAY_MS
_END_MS = 253_402_300_800_000 - DAY_MS
"""The years 1 to 9999 except a day at each end, so that hours can be counted on from a date."""


def is_date(milliseconds: int) -> bool:
    """Whether milliseconds since 1970 make a date."""
    return _FIRST_MS <= milliseconds < _END_MS


def are_dates(milliseconds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The same of many."""
    there: NDArray[np.bool_] = (milliseconds >= _FIRST_MS) & (milliseconds < _END_MS)
    return there


def counted_in(unit_ms: int, milliseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole hours or days since 1970; NO_DATE where there is no date."""
    whole: NDArray[np.int64] = np.where(are_dates(milliseconds), milliseconds // unit_ms, NO_DATE)
    return whole
