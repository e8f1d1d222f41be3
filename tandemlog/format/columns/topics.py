"""The topics of many records: mostly one, and always few."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import distinct_slices
from ..arrays.ragged import gather_rows
from .headers import HeaderColumns

_SAMPLE: Final = 16


def topics_of(
    data: NDArray[np.uint8], headers: HeaderColumns
) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct topics of a window's records, and which of them each record has."""
    if _one_topic(data, headers):
        firsts, numbers = np.zeros(1, np.int64), np.zeros(headers.count, np.int64)
    else:
        firsts, numbers = distinct_slices(data, headers.topic_start, headers.topic_length)
    starts, lengths = headers.topic_start[firsts], headers.topic_length[firsts]
    texts = [
        data[start : start + length].tobytes().decode("utf-8", "replace")
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    return texts, numbers


def _one_topic(data: NDArray[np.uint8], headers: HeaderColumns) -> bool:
    """Whether all records have the same, as those of a pull do. A few records tell it of most
    windows where it is not so."""
    starts, lengths = headers.topic_start, headers.topic_length
    width = int(lengths[0]) if headers.count else 0
    if not width or (lengths != width).any():
        return False
    for some in (starts[:: headers.count // _SAMPLE + 1], starts):
        rows = gather_rows(data, some, width)
        if (rows != rows[0]).any():
            return False
    return True
