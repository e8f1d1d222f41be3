"""A paced producer and a reader that note when messages pass their stages.

    python -m benchmarks.stages.watched_clients ENDPOINT MARKS send|read RATE SECONDS

Each is what the clients of `benchmarks/peers` do where waiting times are measured: 128-byte bodies,
due in bursts of a millisecond, default options. One message of each burst is sampled; its number
stands at the end of its body.

    sent        number, its place among all messages, due, `send` called
    done        number, its future done
    sealed      request id, messages, taken by the sender's loop, requests in flight then
    written     request id, handed to the socket
    answered    request id, answer taken by the loop
    hand        number, queue, queue offset, log offset, answer received, buffered, in the
                caller's hand
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.measures import BODY_BYTES, cpu_seconds, paced
from benchmarks.stages.marks import Marks, around, now
from tandemlog import LATEST, Consumer, Message, Producer
from tandemlog.cluster import data_link
from tandemlog.cluster.append_call import DataAppendCall
from tandemlog.consume.following.fetcher import Fetcher
from tandemlog.memory import keep_freed_memory
from tandemlog.produce.chain import Chain

TOPIC = "stages"
QUEUES = 4
WARM_UP_S = 2.0
_NUMBER = slice(BODY_BYTES - 12, BODY_BYTES)
_NONE = b"x" * 12

marks = Marks()


def watch_producer() -> None:
    writing = 0

    def add(original: Any) -> Any:
        def watched(self: Any, batch: Any) -> None:
            original(self, batch)
            marks.note("sealed", batch.request_id, batch.count, now(), self.in_flight)

        return watched

    def to_write(original: Any) -> Any:
        def watched(self: Any) -> Any:
            nonlocal writing
            batch = original(self)
            writing = 0 if batch is None else batch.request_id
            return batch

        return watched

    def write(original: Any) -> Any:
        async def watched(self: Any, request: Any) -> None:
            request_id = writing
            await original(self, request)
            marks.note("written", request_id, now())

        return watched

    def received(original: Any) -> Any:
        def watched(self: Any, response: Any, endpoint: str) -> None:
            marks.note("answered", response.request_id, now())
            original(self, response, endpoint)

        return watched

    around(Chain, "add", add)
    around(Chain, "to_write", to_write)
    around(Chain, "received", received)
    around(DataAppendCall, "write", write)


class Received:
    """When the answer came whose batches are buffered next, and when each batch was buffered."""

    def __init__(self) -> None:
        self._came = 0
        self._batches: dict[int, tuple[int, int]] = {}

    def watch(self) -> None:
        def frame(original: Any) -> Any:
            def watched(*fields: Any) -> Any:
                self._came = now()
                return original(*fields)

            return watched

        def append(original: Any) -> Any:
            def watched(fetcher: Any, queue: Any, batch: Any) -> None:
                self._batches[id(batch)] = self._came, now()
                original(fetcher, queue, batch)

            return watched

        around(data_link, "Frame", frame)
        around(Fetcher, "_append", append)

    def of(self, batch: object) -> tuple[int, int]:
        return self._batches.pop(id(batch))


def send(endpoint: str, rate: int, seconds: float) -> None:
    """`rate` a second, and a report of the processor time."""
    watch_producer()
    sampled_so_far = count = 0
    with Producer(endpoint) as producer:

        def send_one(body: bytes, sampled: bool) -> None:
            nonlocal sampled_so_far, count
            place, count = count, count + 1
            if not sampled:
                producer.send(Message(TOPIC, body, queue_id=place % QUEUES))
                return
            number, sampled_so_far = sampled_so_far, sampled_so_far + 1
            due = round(float(body[: body.index(b" ")]) * 1e9)
            called = now()
            body = body[: _NUMBER.start] + b"%012d" % number
            future = producer.send(Message(TOPIC, body, queue_id=place % QUEUES))
            future.add_done_callback(lambda _: marks.note("done", number, now()))
            marks.note("sent", number, place, due, called)

        paced(rate, WARM_UP_S, send_one)
        marks.note("began", now())
        cpu = cpu_seconds()
        paced(rate, seconds, send_one)
        producer.flush()
        marks.note("cpu_us", round(1e6 * (cpu_seconds() - cpu)))


def read(endpoint: str, rate: int, seconds: float) -> None:
    """Until nothing has come for five seconds; says `ready` when it reads."""
    received = Received()
    received.watch()
    with Consumer(endpoint) as consumer, consumer.follow(TOPIC, start=LATEST) as stream:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        wait, cpu = 20_000.0, cpu_seconds()
        while True:
            try:
                batch = stream.next_batch(timeout_ms=wait)
            except TimeoutError:
                break
            if batch is None:
                break
            wait, handed = 5_000.0, now()
            came, buffered = received.of(batch)
            for message in batch:
                number = message.body[_NUMBER]
                if number == _NONE:
                    continue
                marks.note(
                    "hand", int(number), message.queue_id, message.queue_offset,
                    message.physical_offset, came, buffered, handed,
                )  # fmt: skip
        marks.note("cpu_us", round(1e6 * (cpu_seconds() - cpu)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("marks", type=Path)
    parser.add_argument("work", choices=("send", "read"))
    parser.add_argument("rate", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    keep_freed_memory()
    marks.note_collections()
    work = {"send": send, "read": read}[given.work]
    work(given.endpoint, given.rate, given.seconds)
    marks.save(given.marks)


if __name__ == "__main__":
    main()
