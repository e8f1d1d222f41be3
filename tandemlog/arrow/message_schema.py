"""The columns of messages for readers without Spark, and their Arrow types.

Names are those of `tandemlog dump` and of Spark's views. Times are milliseconds of UTC, as records
have them.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ..errors import InvalidArgumentError

STRING_MAP: Final = pa.map_(pa.string(), pa.string())
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")

MESSAGE_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "size": pa.int32(),
    "version": pa.int32(),
    "msg_id": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "uniq_key": pa.string(),
    "sharding_key": pa.string(),
    "properties": STRING_MAP,
    "sys_flag": pa.int32(),
    "flag": pa.int32(),
    "born_timestamp": TIMESTAMP,
    "born_host": pa.string(),
    "store_timestamp": TIMESTAMP,
    "store_host": pa.string(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body_crc": pa.int32(),
    "body": pa.binary(),
}
DEFAULT: Final = (
    "topic", "queue_id", "queue_offset", "physical_offset", "msg_id", "tags", "keys", "properties",
    "born_timestamp", "store_timestamp", "body",
)  # fmt: skip
"""What a reader gets who names no columns: what the producer gave, and where it is stored."""


def message_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The given columns in that order; DEFAULT for None. Raises InvalidArgumentError for a name
    that does not exist, for none at all, and for one that comes twice."""
    names = DEFAULT if columns is None else tuple(columns)
    unknown = [name for name in names if name not in MESSAGE_TYPES]
    if isinstance(columns, str) or unknown or not names or len(set(names)) < len(names):
        what = (
            f"there is no column {unknown[0]!r}" if unknown else "name columns in a list, each once"
        )
        if isinstance(columns, str):
            what = f"columns must be a list of names, not {columns!r}"
        raise InvalidArgumentError(
            f"{what}; the columns are {', '.join(MESSAGE_TYPES)}", field="columns"
        )
    return pa.schema([pa.field(name, MESSAGE_TYPES[name]) for name in names])
