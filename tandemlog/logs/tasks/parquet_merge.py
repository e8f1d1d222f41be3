"""The last step of an export: merges the many small files of a topic's day into few larger ones.

    topic=T/day=D   part-00   part-01   part-02      one of each task with rows of topic and day
                    └────────────┬────────────┘
                            part-00-02               up to the target's size

A task reads a stretch of the log, in which a topic may have a row or two: a log of 50 GB with some
hundred topics would leave a hundred thousand files. Rows keep the order of the log. If a task runs
again, also beside its first attempt, it finds the whole file under its name, or writes the same.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from .parquet_folder import parquet_writer

_GROUP_BYTES: Final = 64 << 20
"""Of rows in memory, for one row group."""


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A file of `folder` below the messages' folder; names have the order of the log."""

    folder: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class MergeTask:
    """`groups`: the parts that become one file each."""

    directory: str
    groups: tuple[tuple[ParquetPart, ...], ...]
    compression: str


def groups_of(parts: Iterable[ParquetPart], target_bytes: int) -> Iterator[tuple[ParquetPart, ...]]:
    """The parts that become one file, neighbours in one folder of about `target_bytes` together; a
    part that is large enough stays as it is."""
    group: list[ParquetPart] = []
    for part in sorted(parts, key=lambda each: (each.folder, each.name)):
        full = sum(each.size for each in group) + part.size > target_bytes
        if group and (full or group[0].folder != part.folder):
            if len(group) > 1:
                yield tuple(group)
            group = []
        group.append(part)
    if len(group) > 1:
        yield tuple(group)


def merge_tasks(
    directory: Path, groups: Sequence[tuple[ParquetPart, ...]], count: int, compression: str
) -> list[MergeTask]:
    """At most `count` tasks of similar size."""
    filled = [0] * max(min(count, len(groups)), 1)
    tasks: list[list[tuple[ParquetPart, ...]]] = [[] for _ in filled]
    for group in sorted(groups, key=lambda each: -sum(part.size for part in each)):
        least = filled.index(min(filled))
        tasks[least].append(group)
        filled[least] += sum(part.size for part in group)
    return [MergeTask(str(directory), tuple(each), compression) for each in tasks if each]


def merge_parts(task: MergeTask) -> int:
    """Merge every group of a task; returns how many files fewer there are. Raises OSError."""
    fewer = 0
    for group in task.groups:
        folder = Path(task.directory) / group[0].folder
        merge(folder, [part.name for part in group], task.compression)
        fewer += len(group) - 1
    return fewer


def merge(folder: Path, names: Sequence[str], compression: str) -> None:
    """Merge these files into one, and remove them."""
    last = names[-1].removeprefix("part-")
    target = folder / f"{names[0].removesuffix('.parquet')}-{last}"
    if not target.exists():
        aside = folder / f".{target.name}.{uuid.uuid4().hex}"
        try:
            _write(aside, [folder / name for name in names], compression)
            aside.replace(target)
        except FileNotFoundError:
            if not target.exists():  # else another attempt has merged them
                raise
        finally:
            aside.unlink(missing_ok=True)
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _write(path: Path, sources: Sequence[Path], compression: str) -> None:
    writer: pq.ParquetWriter | None = None
    tables: list[pa.Table] = []
    try:
        for source in sources:
            with pq.ParquetFile(source) as file:
                table = file.read()
            if writer is None:
                writer = parquet_writer(path, table.schema, compression)
            tables.append(table)
            if sum(each.nbytes for each in tables) >= _GROUP_BYTES:
                writer.write_table(pa.concat_tables(tables))
                tables = []
        if writer is not None and tables:
            writer.write_table(pa.concat_tables(tables))
    finally:
        if writer is not None:
            writer.close()
