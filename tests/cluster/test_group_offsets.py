"""What a group has passed, and what its consumers were handed, with processes that are killed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.running import ROOT, Running, wait_until
from tandemlog import Admin, AsyncConsumer, Consumer, FollowOptions, Message, Producer

pytestmark = pytest.mark.cluster

CONSUMER = """
import json, sys
from tandemlog import Consumer, FollowOptions
endpoint, options, follow, reads = json.loads(sys.argv[1])
options = FollowOptions(session_timeout_ms=1_000, **options)
with Consumer(endpoint, group="g", options=options) as consumer:
    with consumer.follow("orders", **follow) as stream:
        while not (reads or stream.assignment):
            stream.poll(10)
        for _ in range(reads):
            message = stream.poll(60_000)
            print(message.body.decode(), flush=True)
        print("ready", flush=True)
        sys.stdin.read()
"""


class Worker:
    """A consumer in a process of its own, which is killed when it is `ready`."""

    def __init__(self, endpoint: str, *, options: Any = None, **follow: Any) -> None:
        argument = json.dumps([endpoint, options or {}, follow, 0])
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, argument],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed_when_ready(self) -> list[str]:
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            if line.strip() == "ready":
                break
            lines.append(line.strip())
        self.process.kill()
        self.process.wait()
        return lines


def put(endpoint: str, *bodies: str, queue: int | None = None) -> None:
    with Producer(endpoint) as producer:
        for number, body in enumerate(bodies):
            at = number % 4 if queue is None else queue
            producer.send(Message("orders", body.encode(), queue_id=at, tags="other")).result(30)


def read(endpoint: str, count: int, **follow: Any) -> list[str]:
    with Consumer(endpoint, group="g") as consumer, consumer.follow("orders", **follow) as stream:
        found: list[str] = []
        while len(found) < count and (message := stream.poll(30_000)) is not None:
            found.append(message.body.decode())
        rest = stream.poll(200)
        assert rest is None, rest
        return sorted(found)


def test_a_group_that_began_at_the_end_loses_nothing_while_all_are_killed(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        endpoint = running.master.endpoint
        with Admin(endpoint) as admin:
            admin.create_topic("orders", queues=4)
        put(endpoint, "old-0", "old-1", "old-2", "old-3")
        assert Worker(endpoint, start="latest").killed_when_ready() == []
        running.master.kill()
        running.master.start()
        put(endpoint, "new-0", "new-1")
        with Admin(endpoint) as admin:
            admin.create_topic("orders", queues=5, update=True)
        put(endpoint, "new-2", "new-3", queue=4)
        assert read(endpoint, 4, start="latest") == ["new-0", "new-1", "new-2", "new-3"]


def test_what_the_tags_skip_is_no_lag_of_a_group_that_was_killed(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        endpoint = running.master.endpoint
        with Admin(endpoint) as admin:
            admin.create_topic("orders", queues=4)
            put(endpoint, *map(str, range(40)))
            worker = Worker(endpoint, tags="none", options={"auto_commit_ms": 100})
            assert worker.process.stdout is not None
            worker.process.stdout.readline()  # ready: and it polls no more

            def lag() -> int:
                return sum(each.messages for each in admin.lag("g"))

            # acknowledged messages count once they are dispatched
            wait_until(lambda: f"a lag of 40, not {lag()}", lambda: lag() == 40)
            worker.process.kill()
            worker.process.wait()
            options = FollowOptions(auto_commit_ms=100)
            with (
                Consumer(endpoint, group="g", options=options) as consumer,
                consumer.follow("orders", tags="none") as stream,
            ):
                wait_until("no lag", lambda: stream.poll(50) is None and not lag())


def test_a_commit_that_was_cancelled_is_sent_by_the_next_one(tmp_path: Path) -> None:
    by_hand = FollowOptions(auto_commit_ms=None)

    async def scenario(endpoint: str) -> None:
        async with (
            AsyncConsumer(endpoint, group="g", options=by_hand) as consumer,
            await consumer.follow("orders") as stream,
        ):
            for wait_ms in (0, 0.2, 0.5, 1, 2, 5):
                assert await stream.poll(30_000) is not None
                try:
                    async with asyncio.timeout(wait_ms / 1e3):
                        await stream.commit()
                except TimeoutError:
                    await stream.commit()
                assert await consumer.committed() == stream.positions

    with Running(tmp_path) as running:
        endpoint = running.master.endpoint
        with Admin(endpoint) as admin:
            admin.create_topic("orders", queues=4)
        put(endpoint, *map(str, range(8)))
        asyncio.run(scenario(endpoint))


def test_a_slow_program_alone_in_its_group_gets_on(tmp_path: Path) -> None:
    """In a process: while it sleeps, its member leaves; the next message is another one."""
    slow = CONSUMER.replace(
        "print(message", "import time; time.sleep(1.5)\n            print(message"
    )
    with Running(tmp_path) as running:
        endpoint = running.master.endpoint
        with Admin(endpoint) as admin:
            admin.create_topic("orders", queues=1)
        put(endpoint, *map(str, range(4)), queue=0)
        argument = json.dumps([endpoint, {"max_poll_interval_ms": 500}, {}, 4])
        process = subprocess.Popen(
            [sys.executable, "-c", slow, argument],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(4)] == ["0", "1", "2", "3"]
        process.kill()
        process.wait()
