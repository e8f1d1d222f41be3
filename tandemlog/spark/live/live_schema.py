"""The columns of live topics: those of the segments' view `messages`, as far as a pull returns
them, and those of which the sink makes a message."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tandemlog.logs.job_errors import OptionError
from tandemlog.logs.view_columns import MESSAGES, SERVICE, Columns

from ..cluster.cluster_errors import SinkSchemaError
from ..cluster.kafka_names import kafka_column
from ..spark_schema import spark_schema

_OF_FILES: Final = ("size", "version", "prepared_transaction_offset", "body_crc")

LIVE: Final[Columns] = {name: kind for name, kind in MESSAGES.items() if name not in _OF_FILES}

_UNDER_WAY: Final = ("real_topic", "real_queue_id")
"""Of records that no client reads."""

NAMED: Final[Columns] = LIVE | {
    name: kind for name, kind in SERVICE.items() if name not in _UNDER_WAY
}
"""LIVE, and the columns that a reader has to name."""

_TEXT: Final = (StringType,)
_NUMBER: Final = (ShortType, IntegerType, LongType)

SINK: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "body": ((BinaryType, StringType), "binary or string"),
    "topic": (_TEXT, "string"),
    "tags": (_TEXT, "string"),
    "keys": (_TEXT, "string"),
    "queue_id": (_NUMBER, "int"),
    "sharding_key": (_TEXT, "string"),
    "properties": ((MapType,), "map<string,string>"),
    "deliver_at": ((TimestampType,), "timestamp"),
    "delay": ((DayTimeIntervalType, *_NUMBER), "interval or ms (bigint)"),
}
"""What the sink writes: column, its types, and their name in errors."""

_THE_STORES: Final = (frozenset(MESSAGES) | frozenset(SERVICE)) - frozenset(SINK)
"""Columns that the store sets for every message: rows that are copied may have them."""


def live_columns(names: tuple[str, ...] | None) -> Columns:
    """The columns of the option, or all. Raises OptionError for an unknown one."""
    if names is None:
        return LIVE
    unknown = [name for name in names if name not in NAMED]
    if unknown:
        raise OptionError(
            f"option columns: there is no column {unknown[0]!r}, only {', '.join(NAMED)}"
            + kafka_column(unknown[0])
        )
    return {name: NAMED[name] for name in names}


def columns_of(schema: StructType) -> Columns:
    """The columns that the schema of a read asks for. Raises OptionError if a name or a type
    is not the source's."""
    chosen = live_columns(tuple(schema.fieldNames()))
    for field, ours in zip(schema.fields, spark_schema(chosen).fields, strict=True):
        if field.dataType != ours.dataType:
            raise OptionError(
                f"column {field.name} is {ours.dataType.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return chosen


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Check that rows of this schema can become messages; `topic` is the option. Raises
    SinkSchemaError, with the column and the way out."""
    for field in schema.fields:
        if field.name in SINK:
            _check_type(field.name, field.dataType)
        elif field.name not in _THE_STORES:
            raise SinkSchemaError(
                f"column {field.name} is not one that the sink writes: it writes {', '.join(SINK)}"
                + kafka_column(field.name)
            )
    if "body" not in schema.names:
        raise SinkSchemaError(
            f"the rows have no column body (binary or string), only {', '.join(schema.names)}"
            + "".join(kafka_column(name) for name in schema.names if name == "value")
        )
    if "topic" not in schema.names and topic is None:
        raise SinkSchemaError("no topic: give the option topic, or a column topic")


def _check_type(name: str, kind: DataType) -> None:
    kinds, text = SINK[name]
    fits = isinstance(kind, kinds)
    if fits and isinstance(kind, MapType):
        fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not fits:
        raise SinkSchemaError(f"column {name} must be {text}, not {kind.simpleString()}")
