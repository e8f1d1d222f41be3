"""What the services of a node wrote into records, as columns."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.log_builder import LogBuilder
from tandemlog.format.constants import DUE
from tandemlog.format.delay.framing import after, at, by_level, recall_record
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.lease.dead_letter import encode_dead_letter
from tandemlog.format.record.record import Record, decode_record
from tandemlog.logs.reading.log_bytes import LocalLog
from tandemlog.logs.reading.log_files import find_log
from tandemlog.logs.reading.log_spans import Span
from tandemlog.logs.reading.span_scan import Piece, SpanScan
from tandemlog.logs.view_columns import SERVICE, arrow_schema, view_batch

TIMER, SCHEDULE, HALF = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
DUE_MS = 1_700_000_090_250
LEVELS = DelayLevels("1s 7s")


def rows(builder: LogBuilder) -> list[dict[str, Any]]:
    """What each record says; only the columns with a value."""
    builder.write()
    files = find_log(builder.store)
    found: list[dict[str, Any]] = []
    with closing(LocalLog(files)) as log:
        [file] = files.files
        for part in SpanScan(log, Span(file.base, file.end, file.base, builder.end)):
            assert isinstance(part, Piece)
            batch = view_batch(part.data, part.headers, SERVICE, LEVELS)
            batch.validate(full=True)
            assert batch.schema == arrow_schema(SERVICE)
            found += batch.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def time(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    builder = LogBuilder(tmp_path, 16384)
    builder.put("orders", 3)
    return builder


def test_plain_messages_say_nothing(log: LogBuilder) -> None:
    log.put("orders", 0, properties=b"")
    assert rows(log) == [{}, {}]


def test_messages_that_wait(log: LogBuilder) -> None:
    timed = log.put(TIMER, 0, b"1", at("orders", 3, DUE_MS))
    counted = log.put(TIMER, 0, b"2", after("paid", 0, 90_250, 1))
    level = log.put(SCHEDULE, 1, b"3", by_level("orders", 1, 2))
    assert rows(log)[1:] == [
        {"deliver_at": time(DUE_MS), "real_topic": "orders", "real_queue_id": 3},
        {
            "deliver_at": time(counted.store_timestamp + 90_250),
            "real_topic": "paid",
            "real_queue_id": 0,
        },
        {
            "deliver_at": time(level.store_timestamp + 7_000),
            "real_topic": "orders",
            "real_queue_id": 1,
        },
    ]
    assert timed.topic == TIMER


def test_a_recall_does_not_wait(log: LogBuilder) -> None:
    waiting = log.put(TIMER, 0, b"1", {**at("orders", 3, DUE_MS), "UNIQ_KEY": "a"})
    recall = decode_record(
        recall_record(waiting, DUE_MS, now_ms=1, born_host="[::1]:1", store_host="[::1]:1")
    )
    log.put(TIMER, 0, b"0", recall.properties_raw)
    assert rows(log)[2] == {}


def test_messages_that_have_come(log: LogBuilder) -> None:
    def came(properties: dict[str, str]) -> Record:
        return log.put("orders", 3, b"x", properties)

    came(at("orders", 3, DUE_MS))
    # born 3 ms before its store time
    born = came({}).born_timestamp + 7
    came(after("orders", 3, 90_250, born))
    far_away = came(after("orders", 3, 90_250, 5_000))
    came(by_level("orders", 3, 2))
    assert far_away.properties[DUE] == "+90250"
    assert rows(log)[1:] == [
        {"deliver_at": time(DUE_MS)},
        {},
        {"deliver_at": time(born + 90_250)},
        # not its born time: the second in which a broker would have acted
        {"deliver_at": time(96_000)},
        {},
    ]


def test_transactions(log: LogBuilder) -> None:
    where = {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "3", "UNIQ_KEY": "a"}
    log.put(HALF, 0, b"half", where)
    log.put("orders", 3, b"done", {"UNIQ_KEY": "a"}, sys_flag=8)
    log.put("orders", 3, b"gone", {"UNIQ_KEY": "a"}, sys_flag=12)
    log.put("orders", 3, b"old", {"UNIQ_KEY": "a"}, sys_flag=4)
    assert rows(log) == [
        {},
        {"transaction": "prepared", "real_topic": "orders", "real_queue_id": 3},
        {"transaction": "committed"},
        {"transaction": "rolled_back"},
        {"transaction": "prepared"},
    ]


def test_dead_letters(log: LogBuilder) -> None:
    origin = log.put("orders", 3, b"x", at("orders", 3, DUE_MS), queue_offset=1 << 40)
    error = "no such customer: Zoë"
    letter = encode_dead_letter(
        origin, "billing", attempts=17, error=error, first_ms=1, last_ms=2, store_host="[::1]:1"
    )
    ours = decode_record(letter).properties_raw
    log.put("%DLQ%billing", 0, b"x", ours)
    log.put("%DLQ%billing", 0, b"x", {"DLQ_ORIGIN_TOPIC": "%RETRY%billing", "RETRY_TOPIC": "paid"})
    log.put("%DLQ%billing", 0, b"x", {"RETRY_TOPIC": "paid"})
    log.put("%DLQ%billing", 0, b"x", {"DLQ_ORIGIN_TOPIC": "%RETRY%billing"})
    log.put("%DLQ%billing", 0, b"x", {"TANDEMLOG_ORIGIN_QUEUE": str(1 << 31)}, reconsume_times=5)
    log.put("orders", 0, b"no dead letter", ours)
    assert rows(log)[2:] == [
        {
            "attempts": 17,
            "origin_topic": "orders",
            "origin_queue_id": 3,
            "origin_queue_offset": 1 << 40,
            "last_error": "no such customer: Zoë",
        },
        {"origin_topic": "paid"},
        {"origin_topic": "paid"},
        {"origin_topic": "%RETRY%billing"},
        {"attempts": 5},
        {},
    ]
