"""Which of many records a filter selects."""

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array
from ..columns.headers import gather_headers
from ..columns.property_layouts import find_properties
from .evaluation import matches
from .expression import Condition, property_names
from .text_column import Bools, TextColumn


def selected_records(
    condition: Condition,
    buffer: Buffer,
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Bools:
    """bool[n] for the records at `positions` of `buffer`, `sizes` bytes each.

    One whose lengths do not agree is selected: its properties say nothing, and the reader is to
    notice the damage.
    """
    data = byte_array(buffer)
    headers = gather_headers(data, positions, sizes)
    lengths = np.where(headers.well_formed, headers.properties_length, 0)
    starts = np.where(headers.well_formed, headers.properties_start, 0)
    names = property_names(condition)
    encoded = [name.encode() for name in names]
    found = find_properties(data, starts, lengths, encoded) if names else []
    columns = {name: TextColumn(data, *places) for name, places in zip(names, found, strict=True)}
    return matches(condition, columns.__getitem__, len(positions)) | ~headers.well_formed
