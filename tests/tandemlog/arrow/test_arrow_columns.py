"""The columns of messages say what the plain decoder says, for records of every form."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fakes.log_builder import LogBuilder, varied
from tandemlog.format.constants import PRODUCER_MARK
from tandemlog.format.record.record import Record
from tandemlog.logs.reading.log_bytes import LocalLog
from tandemlog.logs.reading.log_files import find_log
from tandemlog.logs.reading.log_spans import Span
from tandemlog.logs.reading.span_scan import Piece, SpanScan
from tandemlog.logs.view_columns import MESSAGES, arrow_schema, view_batch


def rows(builder: LogBuilder, columns: dict[str, str] = MESSAGES) -> list[dict[str, Any]]:
    builder.write()
    files = find_log(builder.store)
    found: list[dict[str, Any]] = []
    with closing(LocalLog(files)) as log:
        for file in files.files:
            end = min(file.end, builder.end)
            for part in SpanScan(log, Span(file.base, file.end, file.base, end)):
                assert isinstance(part, Piece)
                batch = view_batch(part.data, part.headers, columns)
                batch.validate(full=True)
                assert batch.schema == arrow_schema(columns)
                found += batch.to_pylist()
    return found


def expected(record: Record) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in MESSAGES}
    row["properties"] = [each for each in record.properties.items() if each[0] != PRODUCER_MARK]
    return row


def plain(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("born_timestamp", "store_timestamp"):
        row[name] = round(row[name].timestamp() * 1000)
    return row


def test_every_field_of_every_form(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path, 8192))
    assert [plain(row) for row in rows(builder)] == [expected(each) for each in builder.records]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x02\x02",
        b"a\x01b",
        b"a\x01b\x01c\x02",
        b"a\x01\x02b\x012\x02",
        b"\x01v\x02x\x01y\x02",
        b"TAGS\x01one\x02TAGS\x01two\x02z\x011",
        b"KEYS\x01\xff\xfe\x02",
        b"k\xc3\x01v\x02",
        "标签\x01值\x02TAGS\x01标\x02".encode(),
        b"n" * 300 + b"\x01" + b"v" * 3000 + b"\x02",
        b"".join(b"name%d\x01%d\x02" % (i, i) for i in range(100)),
        b"KEYS\x01k\x02__TL_SEQ\x01p,0,1,0,1,9\x02z\x011\x02",
        b"__TL_SEQ\x01p\x02",
        b"__SHARDINGKEY\x01\xe4\xb8\xad\x02XXSHARDINGKEY\x01y\x02",
        b"__SHARDINGKEY\x01one\x02a\x01b\x02__SHARDINGKEY\x01two\x02__TL_SEQ\x01p\x02",
    ],
)
def test_properties_of_any_bytes(tmp_path: Path, properties: bytes) -> None:
    builder = LogBuilder(tmp_path, 16384)
    for text in (b"TAGS\x01t\x02", properties, b"KEYS\x01k\x02"):
        builder.put(properties=text)
    assert [plain(row) for row in rows(builder)] == [expected(each) for each in builder.records]


@pytest.mark.parametrize(
    "texts",
    [
        [b"KEYS\x01%d\x02TAGS\x01%s\x02" % (i, b"t" * i) for i in range(1, 5)],
        [b"TAGS\x01%s\x02KEYS\x01k\x02" % tag for tag in (b"one", b"two")],
        [b"__TL_SEQ\x01%d\x02KEYS\x01k\x02" % mark for mark in (5, 60)],
        [b"TAGS\x01a\x02KEYS\x01k\x02", b"KEYS\x01k\x02TAGS\x01a\x02"],
        [b"TAGS\x01first\x02x\x01%d\x02TAGS\x01last\x02" % i for i in range(3)],
        [b"%sLONGNAME\x011\x02TAGS\x01t\x02" % front for front in (b"x", b"y", b"x")],
        ["名\x01%d\x02TAGS\x01标\x02".encode() % i for i in range(3)],
        [b"k\xc3\x01v\x02TAGS\x01\xff\x02", b"k\xc3\x01v\x02TAGS\x01a\x02"],
        [b"", b""],
    ],
)
def test_rows_of_the_same_names_and_of_nearly_the_same(tmp_path: Path, texts: list[bytes]) -> None:
    builder = LogBuilder(tmp_path, 16384)
    for text in texts:
        builder.put(properties=text)
    assert [plain(row) for row in rows(builder)] == [expected(each) for each in builder.records]


@pytest.mark.parametrize("stores", [["10.0.0.5:10911"], ["10.0.0.5:10911", "192.168.1.250:65535"]])
@pytest.mark.parametrize("topics", [["a"], ["a", "b"], ["a", "bb", ""], [*"a" * 40, "b"]])
def test_topics_hosts_and_bodies_that_are_the_same_or_not(
    tmp_path: Path, stores: list[str], topics: list[str]
) -> None:
    builder = LogBuilder(tmp_path, 1 << 16)
    for number in range(82):
        topic = topics[number % len(topics)]
        store = stores[number % len(stores)]
        builder.put(topic, 0, topic.encode() * 3, store_host=store, born_host=store)
    assert [plain(row) for row in rows(builder)] == [expected(each) for each in builder.records]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.put("T", 4, b"x")
    columns = {name: MESSAGES[name] for name in ("body", "queue_id", "topic")}
    assert rows(builder, columns) == [{"body": b"x", "queue_id": 4, "topic": "T"}]


def test_types_are_those_that_spark_expects() -> None:
    schema = arrow_schema(MESSAGES)
    assert schema.field("topic").type == pa.string()
    assert schema.field("store_timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert schema.field("body").type == pa.binary()
