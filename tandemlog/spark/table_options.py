"""The options of CREATE TABLE, which Spark does not pass back to a source in Python.

    CREATE TABLE t USING tandemlog OPTIONS (endpoint ..., topic ...)
        schema()           gets the options, and what Spark adds to them
        catalog            keeps the schema with the metadata of its columns
    SELECT ... FROM t      reader(schema) and streamReader(schema) get no options
    INSERT INTO t          writer(schema) gets none either: only the schema

So the options travel in the schema: as metadata of its first column. Spark copies the metadata of
all of a table's columns onto rows that it has to adapt to the table. Rows that fit already stay as
they are: rows read from another table of ours would keep the options of that table, and would be
written there. So that Spark has to adapt all rows, one text column of a table is a varchar of a
length that no other table has (a checksum of the options), far beyond any text. Adapted rows no
longer have that length.

An expression removes it too, with all other metadata of its column. So each column of a table has
the checksum in its metadata: rows are written to the table whose options they carry only if all
their columns have it, and are those of the table. All other rows that carry a table's options were
read from it, and their target is not known: they are refused.
"""

import json
import zlib
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql.types import DataType, StringType, StructField, StructType, VarcharType

from tandemlog.logs.job_errors import OptionError

_KEY: Final = "tandemlog.table"
_COLUMN: Final = "tandemlog.column"
"""Of each column: the table's checksum, and which of how many columns it is."""
_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps the declared type of a string column."""
_ADDED: Final = frozenset(
    {"provider", "owner", "comment", "location", "external", "is_managed_location"}
)
_MARKS: Final = ("keys", "tags", "topic", "uniq_key", "msg_id")
"""The text columns that may be the varchar; the first one of a table is."""
_LONG: Final = 1 << 30

NOT_HANDED_OVER: Final = (
    "Spark hands the options of CREATE TABLE only to tables that were created without a list of "
    "columns: leave it out, the option columns chooses them. A CREATE TABLE ... AS SELECT and "
    "toTable get no options either: use INSERT INTO, and writeStream.format(...).option(...)"
)


def is_new_table(options: Mapping[str, str]) -> bool:
    """Whether a CREATE TABLE asks for the schema."""
    return any(name.lower() == "provider" for name in options)


def given_to_table(options: Mapping[str, str]) -> dict[str, str]:
    """The options that the user gave to a new table, without Spark's additions, by lower-case name.
    Spark has made a path a URL. Raises OptionError for a secret."""
    lower = {name.lower(): value for name, value in options.items()}
    chosen = {name for name in lower if f"option.{name}" in lower} | ({"path"} & set(lower))
    given = {name: lower[name] for name in lower if name in chosen and name not in _ADDED}
    if "storageoptions" in given:
        raise OptionError(
            "option storageOptions would stay in the catalog, where others can read its secrets: "
            "a table takes those of fsspec's configuration (FSSPEC_<PROTOCOL>_<OPTION> in the "
            "environment of the driver and the executors)"
        )
    if "token" in given:
        raise OptionError(
            "option token would stay in the catalog, where others can read it: a table takes "
            "tokenFile, or cluster with a profile"
        )
    url = urlsplit(given.get("path", ""))
    if url.scheme == "file":
        given["path"] = unquote(url.path)
    return given


def table_schema(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The columns of a new table, with its options in them."""
    mark = next((name for name in _MARKS if name in schema.names), None)
    options = json.dumps(dict(sorted(given.items())))
    length = _LONG + zlib.crc32(options.encode()) % (_LONG - 1)
    fields = []
    for number, field in enumerate(schema.fields):
        kind: DataType = VarcharType(length) if field.name == mark else field.dataType
        metadata = {_COLUMN: _column(options, schema, number)}
        if number == 0:
            metadata[_KEY] = options
        fields.append(StructField(field.name, kind, field.nullable, metadata))
    return StructType(fields)


def _column(options: str, schema: StructType, number: int) -> str:
    names = ",".join(schema.names)
    return f"{number}/{len(schema.fields)} {zlib.crc32(f'{options} {names}'.encode()):08x}"


def without_marks(schema: StructType) -> StructType:
    """The schema as it would be without a table."""
    return StructType(
        [
            StructField(
                each.name,
                StringType() if isinstance(each.dataType, VarcharType) else each.dataType,
                each.nullable,
            )
            for each in schema.fields
        ]
    )


def options_of_read(
    options: Mapping[str, str], schema: StructType, where: Collection[str]
) -> tuple[dict[str, str], bool]:
    """The options of a read, and whether they are a table's: its own, overridden by those of this
    query (`SELECT ... WITH (...)`). With an option that says where to read (one of `where`, in
    lower case) they are not a table's, even if the schema comes from one."""
    given = {name.lower(): value for name, value in options.items()}
    own = _options_in(schema)
    if not own or any(name in given for name in where):
        return given, False
    return json.loads(own) | given, True


def options_of_write(
    options: Mapping[str, str], schema: StructType, where: Collection[str]
) -> tuple[dict[str, str], bool]:
    """As options_of_read, of a batch write. Raises OptionError for rows that were not adapted to
    the table whose options they carry."""
    given, of_table = options_of_read(options, schema, where)
    if of_table and not _is_adapted(schema):
        raise OptionError(
            "the rows carry the options of the table that they were read from, and where they go "
            "is not known: to write, give endpoint and topic, or INSERT INTO another table. A "
            f"table for INSERT INTO needs one of the columns {', '.join(_MARKS[:3])}, and takes no "
            "rows of itself; one that an older version created has to be created again (its "
            "messages stay)"
        )
    return given, of_table


def _is_adapted(schema: StructType) -> bool:
    """Whether these are the columns of one table, as Spark adapts other rows to it."""
    marked = any(name in schema.names for name in _MARKS)
    options = _options_in(schema)
    return marked and all(
        _VARCHAR not in (field.metadata or {})
        and (field.metadata or {}).get(_COLUMN) == _column(options, schema, number)
        for number, field in enumerate(schema.fields)
    )


def _options_in(schema: StructType) -> str:
    """A table's options in the metadata, as JSON; empty if there are none."""
    metadata = (each.metadata or {} for each in schema.fields)
    return next((each[_KEY] for each in metadata if _KEY in each), "")
