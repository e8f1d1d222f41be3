"""The columns of every view, as Arrow carries them; Spark's own types are in spark_schema.py.

Spark compares the schema of a reader's batches with its own, field by field in order: `string` and
not large_string, timestamps in microseconds of UTC. Names are those of `tandemlog dump`.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandemlog.arrow.arrow_columns import message_batch
from tandemlog.arrow.message_schema import STRING_MAP
from tandemlog.format.columns.headers import HeaderColumns
from tandemlog.format.files.queue_unit import DEFAULT_LEVELS, DelayLevels

from .job_errors import OptionError

TIMESTAMP = pa.timestamp("us", tz="UTC")

_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamp": TIMESTAMP,
    "binary": pa.binary(),
    "map": STRING_MAP,
}
Columns = dict[str, str]

MESSAGES: Columns = {
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "long",
    "physical_offset": "long",
    "size": "int",
    "version": "int",
    "msg_id": "string",
    "tags": "string",
    "keys": "string",
    "uniq_key": "string",
    "sharding_key": "string",
    "properties": "map",
    "sys_flag": "int",
    "flag": "int",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "long",
    "body_crc": "int",
    "body": "binary",
}
SERVICE: Columns = {
    "deliver_at": "timestamp",
    "real_topic": "string",
    "real_queue_id": "int",
    "transaction": "string",
    "attempts": "int",
    "origin_topic": "string",
    "origin_queue_id": "int",
    "origin_queue_offset": "long",
    "last_error": "string",
}
"""What a node's services say in a record (service_columns.py): columns of the view `messages` for
those who name them."""
FAULT = "fault"
"""The column that `onCorruption=report` adds: null for a record."""

RAW: Columns = {"physical_offset": "long", "size": "int", "record": "binary"}

ENTRIES: Columns = {
    "span": "long",
    "topic": "string",
    "queue_id": "int",
    "first_queue_offset": "long",
    "count": "int",
    "units": "binary",
}
INDEX: Columns = {"span": "long", "count": "int", "entries": "binary"}
AUDIT: Columns = {
    "file": "string",
    "start": "long",
    "end": "long",
    "first_offset": "long",
    "end_offset": "long",
    "ending": "string",
    "records": "long",
    "bytes": "long",
    "min_store_timestamp": "timestamp",
    "max_store_timestamp": "timestamp",
    "damages": "int",
    "first_damage": "long",
    "reason": "string",
}
BLOCKS: Columns = {"physical_offset": "long", "size": "int", "crc32": "long"}

VIEWS: dict[str, Columns] = {
    "messages": MESSAGES,
    "raw": RAW,
    "entries": ENTRIES,
    "index": INDEX,
    "audit": AUDIT,
    "blocks": BLOCKS,
}


def arrow_schema(columns: Columns) -> pa.Schema:
    return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in columns.items()])


def view_batch(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    columns: Columns,
    delay_levels: DelayLevels = DEFAULT_LEVELS,
) -> pa.RecordBatch:
    """The records of a window, the given columns of MESSAGES and SERVICE in that order;
    `delay_levels` are the store's."""
    return message_batch(data, headers, arrow_schema(columns), delay_levels)


def chosen_columns(view: str, names: list[str] | None, report: bool = False) -> Columns:
    """The view's columns, or those of `names` in that order. Raises OptionError for a name that
    the view has not."""
    every = dict(VIEWS[view])
    if report:
        every[FAULT] = "string"
    if names is None:
        return every
    if view == "messages":
        every |= SERVICE
    unknown = [name for name in names if name not in every]
    if unknown or not names or len(set(names)) < len(names):
        what = f"no column {unknown[0]!r}" if unknown else "columns must be named, each once"
        raise OptionError(f"option columns: {what}; {view} has {', '.join(every)}")
    chosen = {name: every[name] for name in names}
    if report:
        chosen[FAULT] = "string"
    return chosen
