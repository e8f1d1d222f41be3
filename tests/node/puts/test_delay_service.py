"""What a master leaves behind of delays when it stops."""

from datetime import timedelta
from pathlib import Path
from struct import unpack

from fakes.inner_node import config, running, until
from tandemlog import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.storage.metadata.topics import TopicConfig


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
