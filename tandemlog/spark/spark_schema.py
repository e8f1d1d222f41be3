"""The columns of view_columns.py as Spark types: what a source tells Spark, and is asked for."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tandemlog.logs.job_errors import OptionError
from tandemlog.logs.view_columns import FAULT, Columns, chosen_columns

_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map": MapType(StringType(), StringType()),
}


def spark_schema(columns: Columns) -> StructType:
    return StructType([StructField(name, _SPARK[kind]) for name, kind in columns.items()])


def columns_of(view: str, schema: StructType, report: bool = False) -> Columns:
    """The view's columns that a user's own schema asks for. Raises OptionError if a name or
    a type is not the view's."""
    chosen = chosen_columns(view, schema.fieldNames(), report=report and FAULT in schema.names)
    for field in schema.fields:
        kind = _SPARK[chosen[field.name]]
        if field.dataType != kind:
            raise OptionError(
                f"column {field.name} of {view} is {kind.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return chosen
