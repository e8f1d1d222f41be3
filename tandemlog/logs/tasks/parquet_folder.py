"""The folder that `export` writes and `restore` reads.

    DIR/manifest.json                            what the log was, and which parts there are
    DIR/messages/topic=T/day=YYYY-MM-DD/*.parquet   a row a record, every field    (for queries),
                                                 few files of similar size (parquet_merge.py)
    DIR/raw/part-<first offset>.parquet          a row a record, its bytes      (for restore)
    DIR/files/...                                the store's small files: config, checkpoint, epochs

The raw form is byte-exact: beside the records it holds all other bytes of the log's files that are
not zero (BLANK and what is behind it, damage, a torn tail), so that a restore gives the same files.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..job_errors import StoreLayoutError, StoreMissingError

MANIFEST = "manifest.json"
MESSAGES = "messages"
RAW = "raw"
FILES = "files"
VERSION = 1

RECORD = "record"
OTHER = "other"
"""Kinds of raw rows: a whole record, or other bytes."""

RAW_SCHEMA = pa.schema(
    [
        pa.field("physical_offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("bytes", pa.binary(), nullable=False),
    ]
)

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The day of records whose store time is not a date; Spark and Arrow read it as null."""

# The characters that Spark and Hive escape in the name of a partition's folder.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


@dataclass(frozen=True, slots=True)
class RawPart:
    """A raw file: its name, how many records it has, and how many bytes of them."""

    name: str
    records: int
    size: int


@dataclass(slots=True)
class Manifest:
    """Offsets in the log; `files` are (base, length), `small_files` paths below the store;
    `delay_levels` come from its schedule queues, None if an older version wrote the manifest."""

    file_size: int
    start: int
    end: int
    files: list[list[int]]
    index_tags: bool | None
    queue_file_size: int | None
    delay_levels: str | None = None
    records: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    parts: list[dict[str, Any]] = field(default_factory=list)
    small_files: list[str] = field(default_factory=list)
    version: int = VERSION

    def write(self, directory: Path) -> None:
        aside = directory / f"{MANIFEST}.new"
        aside.write_text(json.dumps(asdict(self), indent=1) + "\n")
        aside.replace(directory / MANIFEST)


def read_manifest(directory: Path) -> Manifest:
    """Raises StoreMissingError without a manifest, StoreLayoutError for one of another program."""
    path = directory / MANIFEST
    if not path.is_file():
        raise StoreMissingError(f"{directory} is no export: it has no {MANIFEST}")
    try:
        document = json.loads(path.read_text())
        if document["version"] != VERSION:
            raise StoreLayoutError(
                f"{path} has version {document['version']}, this program reads {VERSION}"
            )
        return Manifest(**document)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreLayoutError(f"{path} is damaged: {error}") from None


def partition_folder(topic: str, day: str) -> str:
    """`topic=T/day=D`, with what a folder's name cannot have escaped as Spark does."""
    escaped = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in topic)
    return f"topic={escaped}/day={day}"


def parquet_writer(path: Path, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    # A dictionary pays off for few different values; bodies, ids and offsets are all different.
    names = [each for each in ("tags", "born_host", "store_host", "kind") if each in schema.names]
    return pq.ParquetWriter(
        path, schema, compression=compression, use_dictionary=names, write_statistics=True
    )
