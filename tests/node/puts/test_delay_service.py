"""What the master does with messages that wait, step by step, and what it leaves when it stops."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from struct import unpack

import pytest

from fakes.inner_node import config, running, until
from fakes.stores import CONFIG, Bench
from fakes.waiting import put_waiting, ready_desk, waiting_put
from tandemlog import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.puts.delay_service import FAILED_S, DelayService
from tandemlog_server.storage.errors import DiskFullError
from tandemlog_server.storage.metadata.topics import TopicConfig


def bench_of() -> Bench:
    return Bench(replace(CONFIG, commit_log_file_size=8192 * 64, queue_file_size=20 * 1000))


def test_on_a_full_disk_old_files_do_not_wait_for_what_is_due() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "old", delay_ms=10**7))
    end = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, "due", delay_ms=10))
    service = DelayService(bench.store, ready_desk(bench))
    bench.clock.advance(1)
    cleaner = bench.store._cleaner
    cleaner.disk_full, cleaner.waits_for = DiskFullError("90 % full"), end
    assert service._step() == 0
    bench.settle()
    assert bench.store.delays.needs_from() == end
    assert service._step() == FAILED_S, "nothing is left to write anew"
    cleaner.disk_full = None
    assert service._step() == 0
    bench.settle()
    assert bench.bodies() == [b"due"]
    service.close()


def test_an_unexpected_error_is_no_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_of()
    desk = ready_desk(bench)
    service = DelayService(bench.store, desk)

    def fail() -> int:
        raise ValueError("unforeseen")

    monkeypatch.setattr(desk, "deliver", fail)
    assert service._step() == FAILED_S
    assert "unforeseen" in caplog.text
    service.close()


async def test_a_broker_hears_of_what_came_just_before_the_stop(tmp_path: Path) -> None:
    """Also where nothing has been flushed yet: it would deliver the message again."""
    rarely = {"flush": "async", "flush_interval_ms": 60_000}
    async with running(config(tmp_path, store=rarely)) as node:
        node.store.create_topic(TopicConfig("a", 1, 1))
        async with AsyncProducer(node.endpoints.listen) as producer:
            await (await producer.send(Message("a", b"x"), delay=timedelta(milliseconds=50)))
        await until(lambda: node.store.delays.next_offset > 0 and not len(node.store.delays.rows))
    check = (tmp_path / "config" / "timercheck").read_bytes()
    assert unpack(">7q", check[:56])[2] == 1, "the first timer that waits"
