"""The job that lists what waits says what a node's fold says, from the files alone."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fakes.log_builder import LogBuilder, flip
from fakes.stores import CONFIG, DIRECTORY, Bench
from fakes.transaction_world import TransactionWorld
from fakes.waiting import put_waiting, ready_desk, waiting_put
from tandemlog.format.constants import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.clock_step import ClockStep, clock_step_record
from tandemlog.format.delay.framing import after, at, by_level
from tandemlog.format.delay.handle import handle_of
from tandemlog.format.record.record import decode_record
from tandemlog.format.transaction.decision import Commit, TakenOver, said_record
from tandemlog.format.transaction.half import half_properties
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import CorruptLogError, OnCorruption, OptionError
from tandemlog.logs.jobs.waiting import waiting
from tandemlog_server.cli import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = InProcess(2)
DUE = 1_700_000_900_000
TIMERS = after("orders", 1, 90_250, 1)


def listed(
    store: Path, out: Path, target_bytes: int = 1 << 20, spark: Any = HERE
) -> list[dict[str, Any]]:
    waiting(spark, store, out, target_bytes=target_bytes)
    rows: list[dict[str, Any]] = pq.read_table(out / "waiting.parquet").to_pylist()
    return rows


def offsets(builder: LogBuilder, out: Path, target_bytes: int = 1 << 20) -> list[int]:
    """Numbers of the builder's records that wait."""
    rows = listed(builder.write(), out, target_bytes)
    places = [each.physical_offset for each in builder.records]
    return [places.index(row["physical_offset"]) for row in rows]


def saved(bench: Bench, target: Path, folder: Path = DIRECTORY) -> Path:
    """The store of a bench on disk."""
    target.mkdir()
    for name in bench.files.listdir(folder):
        status = bench.files.status(folder / name)
        assert status is not None
        if status.is_directory:
            saved(bench, target / name, folder / name)
        else:
            (target / name).write_bytes(bench.files.content(folder / name))
    return target


@pytest.mark.parametrize("seed", range(6))
def test_it_says_what_a_nodes_fold_says(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    bench = Bench(replace(CONFIG, delay_levels="2s 7s 30s", queue_file_size=20 * 1000))
    desk = ready_desk(bench)
    sent: list[tuple[str, int, int]] = []
    for number in range(120):
        name = f"{number}"
        how = random.choice(("delay_ms", "due_ms", "level", "recall", "pass", "plain", "roll"))
        if how == "recall" and sent:
            name, due_ms, offset = sent.pop(random.randrange(len(sent)))
            if desk._fold.rows.find(offset) is not None:
                desk.recall(handle_of("T", due_ms, name, offset))
        elif how == "pass":
            bench.clock.advance(random.random() * 2)
            desk.deliver()
        elif how == "plain":
            bench.put(random.randrange(1, 4))
        elif how == "roll":
            desk.roll(random.randrange(bench.store.log.wrote.value + 1))
        elif how != "recall":
            value = {"delay_ms": 9_000, "due_ms": bench.clock.now_ms() + 9_000, "level": 3}[how]
            more: Any = {how: value if how == "level" else value - random.randrange(8_000)}
            put = waiting_put(bench, name, queue_id=random.randrange(4), **more)
            [segment] = put_waiting(bench, put).segments
            bench.settle()
            found = desk._fold.rows.find(segment.physical_offset)
            assert found is not None
            sent.append((name, int(found.due_ms[0]), segment.physical_offset))
        bench.settle()
    rows = desk._fold.rows.page((-(1 << 62), -1), 1 << 20)
    expected = dict(zip(rows.offsets.tolist(), rows.due_ms.tolist(), strict=True))
    bench.store.close()
    store = saved(bench, tmp_path / "store")
    assert 0 < len(expected) < 100
    for target_bytes in (700, 1 << 20):
        made = listed(store, tmp_path / f"{target_bytes}", target_bytes)
        assert {
            row["physical_offset"]: round(row["deliver_at"].timestamp() * 1000) for row in made
        } == expected
        assert {row["real_topic"] for row in made} == {"T"}


@pytest.mark.parametrize("seed", range(6))
def test_it_says_what_the_fold_of_transactions_says(tmp_path: Path, seed: int) -> None:
    world = TransactionWorld(seed)
    for _ in range(160):
        world.step()
    bench = world.bench
    end = bench.store.log.wrote.value
    bench.store.flush()
    bench.store.confirmed.advance(end)
    bench.store.reput.run_to()
    fold = world.desk._fold
    expected = {
        (each.log_offset, each.half.transaction_id, each.half.group)
        for each in fold.halves.values()
        if each.undecided and each.half.transaction_id not in fold.outcomes
    }
    bench.store.close()
    store = saved(bench, tmp_path / "store")
    for target_bytes in (700, 1 << 20):
        made = listed(store, tmp_path / f"{target_bytes}", target_bytes)
        assert {
            (row["physical_offset"], row["transaction_id"], row["producer_group"]) for row in made
        } == expected


@pytest.mark.parametrize("target_bytes", [300, 1 << 20])
def test_an_outcome_is_that_of_the_whole_transaction(
    log: LogBuilder, tmp_path: Path, target_bytes: int
) -> None:
    def half(key: str, transaction_id: str) -> int:
        more = half_properties("orders", 1, group="g", key=key, transaction_id=transaction_id)
        return log.put(HALF_TOPIC, 0, b"x", keyed(key, more)).physical_offset

    def decided(said: Commit) -> None:
        record = decode_record(said_record(said, now_ms=1, host="[::1]:1"))
        log.put(record.topic, 0, record.body, record.properties_raw)

    first, second = half("a", "committed"), half("b", "committed")
    half("c", "rolled back")  # 2: half queue offset 2
    half("d", "rolled back")
    half("e", "open")  # 4
    decided(Commit("committed", (first, second)))
    log.put(OP_HALF_TOPIC, 0, b"2,", {"TAGS": "d"})
    half("f", "committed")  # too late
    half("g", "open")  # 8
    # of a broker's client, without an id of the transaction: this names the half alone
    broker = keyed("h", {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "1"})
    named = log.put(HALF_TOPIC, 0, b"x", broker).physical_offset
    decided(Commit("another", (named,)))
    half("i", "of halves that are deleted")
    decided(Commit("of halves that are deleted", ()))
    assert offsets(log, tmp_path / "out", target_bytes) == [4, 8]


def test_halves_that_had_ended_on_a_broker(log: LogBuilder, tmp_path: Path) -> None:
    said = decode_record(said_record(TakenOver(1), now_ms=1, host="[::1]:1"))
    where = {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "billing"}
    for key in ("ended", "open"):
        log.put(HALF_TOPIC, 0, b"x", keyed(key, where))
    log.put(TIMER_TOPIC, 0, b"no half", TIMERS)
    log.put(said.topic, 0, said.body, said.properties_raw)
    log.put(HALF_TOPIC, 0, b"x", keyed("later", where), queue_offset=0)
    assert offsets(log, tmp_path / "out") == [1, 2, 4]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path / "store", 1 << 14)


def keyed(key: str, properties: dict[str, str] = TIMERS) -> dict[str, str]:
    return {"UNIQ_KEY": key, **properties}


@pytest.mark.parametrize("target_bytes", [300, 1 << 20])
def test_what_a_broker_let_come(log: LogBuilder, tmp_path: Path, target_bytes: int) -> None:
    log.put(TIMER_TOPIC, 0, b"0", keyed("a"))
    log.put(TIMER_TOPIC, 0, b"1", keyed("b"))
    log.put(SCHEDULE_TOPIC, 4, b"2", keyed("c", by_level("orders", 1, 5)))
    log.put("orders", 1, b"3", keyed("a"))  # it has come
    log.put("other", 1, b"4", keyed("b"))  # a message of another topic with that key
    log.put("orders", 1, b"5", keyed("c", by_level("orders", 1, 5)))
    log.put(TIMER_TOPIC, 0, b"6", keyed("a"))  # once more under the same key
    log.put(TIMER_TOPIC, 0, b"7", keyed("d"))
    log.put(TIMER_TOPIC, 0, b"8", keyed("d", {**TIMERS, "TIMER_ROLL_TIMES": "1"}))
    log.put(TIMER_TOPIC, 0, b"9", keyed("e"))
    log.put(TIMER_TOPIC, 0, b"10", keyed("e", {**TIMERS, "TIMER_DEL_UNIQKEY": "e"}))
    assert offsets(log, tmp_path / "out", target_bytes) == [1, 6, 8]


@pytest.mark.parametrize("target_bytes", [300, 1 << 20])
def test_transactions_without_an_outcome(
    log: LogBuilder, tmp_path: Path, target_bytes: int
) -> None:
    where = {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "billing"}

    def half(key: str, **more: str) -> int:
        return log.put(HALF_TOPIC, 0, b"x", keyed(key, {**where, **more})).physical_offset

    def committed(key: str, named: int) -> None:
        log.put("orders", 1, b"x", {"UNIQ_KEY": key}, sys_flag=8, named=named)

    half("first")  # 0
    committed("first", -1)
    half("open")  # 2: half queue offset 1
    committed("done", half("done"))  # 3, 4
    half("rolled back")  # 5: 3
    half("asked")  # 6: 4
    half("asked", TRANSACTION_CHECK_TIMES="1")  # 7: 5
    log.put(OP_HALF_TOPIC, 0, b"3,nonsense,", {"TAGS": "d"})
    log.put(OP_HALF_TOPIC, 0, b"1,", {"TAGS": "another"})
    old = half("asked and committed")  # 10: 6
    half("asked and committed", TRANSACTION_CHECK_TIMES="1")
    committed("asked and committed", old)
    half("given up")  # 13
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", 0, b"x", keyed("given up", where))
    assert offsets(log, tmp_path / "out", target_bytes) == [2, 7]
    rows = pq.read_table(tmp_path / "out" / "waiting.parquet").to_pylist()
    assert rows[0] == {
        "kind": "transaction",
        "topic": HALF_TOPIC,
        "queue_offset": 1,
        "physical_offset": log.records[2].physical_offset,
        "real_topic": "orders",
        "real_queue_id": 1,
        "deliver_at": None,
        "store_timestamp": rows[0]["store_timestamp"],
        "uniq_key": "open",
        "producer_group": "billing",
        "transaction_id": "open",
    }


def test_a_clock_that_was_set(log: LogBuilder, tmp_path: Path) -> None:
    log.put(TIMER_TOPIC, 0, b"counted", TIMERS)
    log.put(TIMER_TOPIC, 0, b"at a time", at("orders", 1, DUE))
    log.put(TIMER_TOPIC, 0, b"by the new clock", TIMERS)
    before = log.records[2].physical_offset
    clock = ClockStep(-7_200_000, before)
    step = decode_record(clock_step_record(clock, now_ms=1, host="[::1]:1"))
    log.put(step.topic, 0, step.body, step.properties_raw)
    log.put(TIMER_TOPIC, 0, b"later", TIMERS)
    rows = listed(log.write(), tmp_path / "out")
    due = [round(row["deliver_at"].timestamp() * 1000) for row in rows]
    times = [each.store_timestamp for each in log.records]
    assert due == [
        times[0] + 90_250 - 7_200_000, DUE, times[2] + 90_250, times[4] + 90_250
    ]  # fmt: skip


def test_the_summary_and_the_command(log: LogBuilder, tmp_path: Path) -> None:
    log.put(TIMER_TOPIC, 0, b"late", at("orders", 1, 1_700_000_000_001))
    log.put(TIMER_TOPIC, 0, b"later", at("orders", 1, DUE))
    log.put(TIMER_TOPIC, 0, b"no target", {"TIMER_OUT_MS": "1"})
    log.put(HALF_TOPIC, 0, b"x", {"REAL_TOPIC": "paid", "REAL_QID": "0", "UNIQ_KEY": "k"})
    store = log.write()
    words = ["pipeline", "waiting", str(store), "--master", "none", "--format", "json"]
    result = CliRunner().invoke(app.app, words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["waiting"], document["open_halves"], document["late"]) == (2, 1, 1)
    assert (document["began"], document["out"], document["holds"]) == (3, None, True)
    assert document["rows"] == [
        {
            "kind": "delay",
            "topic": "orders",
            "records": 2,
            "late": 1,
            "since": "2023-11-14T22:13:20.007+00:00",
            "first_due": "2023-11-14T22:13:20.001+00:00",
            "last_due": "2023-11-14T22:28:20.000+00:00",
        },
        {
            "kind": "transaction",
            "topic": "paid",
            "records": 1,
            "late": 0,
            "since": "2023-11-14T22:13:20.028+00:00",
            "first_due": None,
            "last_due": None,
        },
    ]


def test_nothing_waits_in_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    result = waiting(HERE, tmp_path)
    assert (result.rows, result.summary["waiting"], result.holds) == ([], 0, True)


def test_damage_and_an_output_that_exists(log: LogBuilder, tmp_path: Path) -> None:
    log.put(TIMER_TOPIC, 0, b"x", at("orders", 1, DUE))
    bad = log.put()
    log.put(TIMER_TOPIC, 0, b"y", at("orders", 1, DUE))
    store = log.write()
    flip(log, bad.physical_offset + 5)
    with pytest.raises(CorruptLogError):
        waiting(HERE, store)
    result = waiting(HERE, store, tmp_path / "out", on_corruption=OnCorruption.SKIP)
    assert result.summary["waiting"] == 2
    assert not result.holds
    with pytest.raises(OptionError, match="exists already"):
        waiting(HERE, store, tmp_path / "out")


@pytest.mark.spark
def test_executors_say_the_same(spark: "SparkSession", log: LogBuilder, tmp_path: Path) -> None:
    for number in range(60):
        waits = log.put(TIMER_TOPIC, 0, b"x", keyed(f"{number}"))
        if number % 3:
            log.put("orders", 1, b"x", keyed(f"{number}"), named=waits.physical_offset or -1)
    store = log.write()
    alone = listed(store, tmp_path / "alone", 900)
    assert listed(store, tmp_path / "spark", 900, spark) == alone
    assert len(alone) == 20
    frame = spark.read.format("tandemlog_segments").option(
        "columns", "topic,physical_offset,deliver_at,real_topic,real_queue_id"
    )
    rows = frame.load(str(store)).where("real_topic IS NOT NULL").collect()
    assert {(row.topic, row.real_topic, row.real_queue_id) for row in rows} == {
        (TIMER_TOPIC, "orders", 1)
    }
    due = {row.physical_offset: row.deliver_at for row in rows}
    assert len(due) == 60
    assert {due[row["physical_offset"]].astimezone(row["deliver_at"].tzinfo) for row in alone} == {
        row["deliver_at"] for row in alone
    }
