"""Arrays made of buffers are those that Arrow makes, and tasks import no pandas for them."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fakes.log_builder import LogBuilder, varied
from tandemlog.arrow.message_schema import STRING_MAP
from tandemlog.arrow.plain_arrays import batch_of, integers, numbers, strings
from tandemlog.logs.view_columns import TIMESTAMP

EVERY_NINTH = [None if number % 9 == 0 else number for number in range(20)]


@pytest.mark.parametrize("values", [[], [None], [5, -1], EVERY_NINTH])
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_integers(values: list[int | None], kind: pa.DataType) -> None:
    made = integers(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize("values", [[], [None], ["", "é", None, "abc"], [None, "x"] * 9])
def test_strings(values: list[str | None]) -> None:
    made = strings(values, pa.string())
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))
    raw = [None if each is None else each.encode() for each in values]
    assert strings(raw, pa.binary()).equals(pa.array(raw, pa.binary()))


def test_numbers_of_every_second_place() -> None:
    assert numbers(np.arange(6, dtype=np.int32)[::2], pa.int32()).to_pylist() == [0, 2, 4]


def test_a_batch_of_rows() -> None:
    schema = pa.schema(
        {"t": TIMESTAMP, "n": pa.int64(), "s": pa.string(), "b": pa.binary(), "m": STRING_MAP}
    )
    times = [
        datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
        None,
        datetime(1969, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
    ]
    rows: list[dict[str, Any]] = [
        {"t": time, "n": 1 << 40, "s": "a", "b": b"\xff", "m": None, "more": 1} for time in times
    ]
    batch = batch_of(rows, schema)
    batch.validate(full=True)
    assert batch.equals(pa.RecordBatch.from_pylist(rows, schema=schema))


READ_ALL = """
import sys
from tandemlog.spark.segments.segment_options import parse_segment_options
from tandemlog.spark.segments.segment_source import SegmentReader
from tandemlog.spark.session_tasks import TaskReader
import base64, pickle
for view in ("messages", "raw", "entries", "index", "audit", "blocks"):
    options = {"path": sys.argv[1], "view": view}
    reader = SegmentReader(parse_segment_options(options))
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows, view
tasks = TaskReader(base64.b64encode(pickle.dumps((len, ["abc"]))).decode())
for part in tasks.partitions():
    [batch] = tasks.read(part)
print("pandas" in sys.modules)
"""


def test_no_task_imports_pandas(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path, 8192))
    builder.write()
    command = [sys.executable, "-c", READ_ALL, str(builder.store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr
