"""A copy from topic to topic whose driver and master are killed: every row once, none more."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fakes.spark_program import SparkProgram
from helpers.running import Running
from tandemlog import Admin, Consumer, Producer, ProducerOptions
from tandemlog.spark.cluster.stream_offset import queues_in

pytestmark = pytest.mark.spark

QUEUES = 4
BATCH = 200


@contextmanager
def producing(endpoints: list[str], topic: str, rows: int) -> Iterator[list[bytes]]:
    """Rows come while the block runs, in small pieces to all queues; the list has those sent."""
    sent: list[bytes] = []
    stop = threading.Event()

    def produce() -> None:
        with Producer(endpoints, ProducerOptions(batch_bytes=20_000)) as producer:
            while not stop.is_set() and len(sent) < rows:
                piece = [b"row %06d" % number for number in range(len(sent), len(sent) + 40)]
                producer.send_many(topic, piece, queues=len(sent) // 40 % QUEUES)
                sent.extend(piece)
                stop.wait(0.1)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join(120)


def bodies(endpoints: list[str], topic: str) -> list[bytes]:
    with (
        Consumer(endpoints, read_from="master") as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        return [message.body for message in stream]


def count(admin: Admin, topic: str) -> int:
    return sum(each.max_offset for each in admin.ranges(topic))


def wait_for_more(program: SparkProgram, admin: Admin, topic: str, more: int = 1) -> None:
    """Until the topic has so many rows more than now."""
    enough = count(admin, topic) + more
    program.wait_until(f"{enough} rows", lambda: count(admin, topic) >= enough)


def kill_within_a_batch(program: SparkProgram, admin: Admin, checkpoint: Path) -> None:
    """When rows are written that Spark does not know of yet."""
    while True:
        wait_for_more(program, admin, "to")
        program.pause()
        if count(admin, "to") > committed_rows(checkpoint):
            program.kill()
            return
        program.resume()


def committed_rows(checkpoint: Path) -> int:
    """Rows of the batches that Spark knows to be done."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not done:
        return 0
    offsets = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
    return sum(sum(queues.values()) for queues in queues_in(json.loads(offsets)).values())


def test_three_killed_drivers_and_a_killed_master_leave_every_row_once(tmp_path: Path) -> None:
    checkpoint, stop = tmp_path / "checkpoint", tmp_path / "stop"
    with Running(tmp_path / "cluster", slaves=1) as cluster, ExitStack() as stack:
        endpoints = cluster.endpoints
        admin = Admin(endpoints)
        for topic in ("from", "to"):
            admin.create_topic(topic, QUEUES)

        def driver(number: int) -> SparkProgram:
            """It gets ready while the one before it works."""
            go = tmp_path / f"go{number}"
            batch = BATCH if number < 3 else 100 * BATCH
            names = [",".join(endpoints), "from", "to", str(checkpoint), str(go), str(stop)]
            log = tmp_path / f"driver{number}.log"
            program = SparkProgram("fakes.copy_driver", [*names, str(batch)], log)
            stack.callback(program.kill)
            return program

        program = driver(0)
        with producing(endpoints, "from", 100 * BATCH) as sent:
            for number in range(3):
                following = driver(number + 1)
                (tmp_path / f"go{number}").touch()
                wait_for_more(program, admin, "to", BATCH)
                if number == 1:
                    cluster.master.kill()
                    cluster.master.start()
                kill_within_a_batch(program, admin, checkpoint)
                program = following
        stop.touch()
        (tmp_path / "go3").touch()
        program.finish()
        copied = Counter(bodies(endpoints, "to"))
        produced = Counter(bodies(endpoints, "from"))
    assert set(produced) == set(sent)
    # not two counters compared: of thousands that differ pytest would make a picture, for minutes
    lost, twice = produced - copied, copied - produced
    assert not lost, f"{lost.total()} lost, first {min(lost)!r}"
    assert not twice, f"{twice.total()} twice, first {min(twice)!r}"
