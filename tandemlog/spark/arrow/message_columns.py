"""Records as the columns that Spark sees: see tandemlog/arrow/message_columns.py."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandemlog.arrow import message_columns
from tandemlog.format.columns.headers import HeaderColumns

from .schema import Columns, arrow_schema


def message_batch(
    data: NDArray[np.uint8], headers: HeaderColumns, columns: Columns
) -> pa.RecordBatch:
    """The records of a window, the given columns of schema.MESSAGES in that order."""
    return message_columns.message_batch(data, headers, arrow_schema(columns))
