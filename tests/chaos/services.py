"""Delays, transactions and a work queue under the same faults, and what must hold of them.

    delayed         acknowledged ─▶ in its topic at the end, once
    transaction     committed    ─▶ in its topic, once      rolled back ─▶ never there
                    unknown      ─▶ there once or never
    job             acknowledged ─▶ handled by a member of the group at least once

Each message's body is its number; one number is used for one of the three. A send whose outcome is
unknown promises nothing, but even that is never stored twice.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Self

from chaos.checks import Finding, body_of
from helpers.running import NodeProcess
from tandemlog import Admin, Consumer, Delivery, Message, Producer
from tandemlog.errors import TandemlogError

JOBS: Final = "chaos-jobs"
DELAYED: Final = "chaos-delayed"
ORDERS: Final = "chaos-orders"
TOPICS: Final = (JOBS, DELAYED, ORDERS)
GROUP: Final = "chaos-workers"
QUEUES: Final = 2
PACE_S: Final = 0.1
DELAY: Final = timedelta(seconds=1)
FAILED_EACH: Final = 7
"""Of so many jobs one fails at its first attempt, and comes again."""


class Services:
    """`with` it while things happen to the nodes: one thread sends, one works."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.jobs: set[int] = set()
        self.delayed: set[int] = set()
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self.unknown = 0
        self.handled: Counter[int] = Counter()
        self._endpoints = list(endpoints)
        self._end = threading.Event()
        self._worked = threading.Event()
        self._sender = threading.Thread(target=self._send, name="chaos-services", daemon=True)
        self._worker = threading.Thread(target=self._work, name="chaos-work", daemon=True)

    def __enter__(self) -> Self:
        with Admin(self._endpoints) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, QUEUES)
        self._sender.start()
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._worked.set()
        self._worker.join(30)

    def stop(self) -> None:
        """Send nothing more; the work goes on."""
        self._end.set()
        self._sender.join(60)

    @property
    def unhandled(self) -> int:
        """Acknowledged jobs that no member has handled yet."""
        return len(self.jobs - self.handled.keys())

    def counts(self) -> dict[str, int]:
        """What was promised, and how many calls promise nothing."""
        return {
            "jobs": len(self.jobs),
            "delayed": len(self.delayed),
            "committed": len(self.committed),
            "rolled_back": len(self.rolled_back),
            "unknown": self.unknown,
        }

    def arrived(self, nodes: Sequence[NodeProcess]) -> bool:
        """Whether every node has what was promised to come, after `stop`."""
        return not any(self._missing(held) for held in map(bodies_of, nodes))

    def check(self, nodes: Sequence[NodeProcess]) -> list[Finding]:
        """The broken promises, after `stop`."""
        found = [Finding("lost", f"job {each}") for each in sorted(self.jobs - set(self.handled))]
        for node in nodes:
            held = bodies_of(node)
            found += [Finding("lost", f"{node.node_id}: {each}") for each in self._missing(held)]
            found += [
                Finding("duplicated", f"{node.node_id} has {body!r} {times} times in {topic}")
                for topic, bodies in held.items()
                for body, times in bodies.items()
                if times > 1
            ]
            found += [
                Finding("vanished", f"{node.node_id} has {each} of {ORDERS}, rolled back")
                for each in sorted(self.rolled_back)
                if body_of(each) in held[ORDERS]
            ]
        return found

    # ---- how

    def _missing(self, held: dict[str, Counter[bytes]]) -> list[str]:
        promised = {JOBS: self.jobs, DELAYED: self.delayed, ORDERS: self.committed}
        return [
            f"{topic} has no {each}"
            for topic, numbers in promised.items()
            for each in sorted(numbers)
            if body_of(each) not in held[topic]
        ]

    def _send(self) -> None:
        number = 0
        with Producer(self._endpoints) as producer:
            while not self._end.wait(PACE_S):
                number += 1
                try:
                    (self._job, self._delay, self._transact)[number % 3](producer, number)
                except TandemlogError:
                    self.unknown += 1

    def _job(self, producer: Producer, number: int) -> None:
        producer.send(Message(JOBS, body_of(number))).result()
        self.jobs.add(number)

    def _delay(self, producer: Producer, number: int) -> None:
        producer.send(Message(DELAYED, body_of(number)), delay=DELAY).result()
        self.delayed.add(number)

    def _transact(self, producer: Producer, number: int) -> None:
        transaction = producer.transaction(Message(ORDERS, body_of(number)))
        with transaction:
            if number % 2:
                transaction.rollback()
        (self.rolled_back if number % 2 else self.committed).add(number)

    def _work(self) -> None:
        with Consumer(self._endpoints) as consumer:
            while not self._worked.is_set():
                try:
                    with consumer.work(JOBS, group=GROUP, backoff=0.5) as work:
                        while not self._worked.is_set():
                            for delivery in work.deliveries(timeout_ms=500):
                                self._handle(delivery)
                except TandemlogError:
                    self._worked.wait(PACE_S)

    def _handle(self, delivery: Delivery) -> None:
        number = int(delivery.body)
        if number % FAILED_EACH == 0 and delivery.attempt == 1:
            delivery.retry(error="the first attempt")
            return
        self.handled[number] += 1
        delivery.ack()


def bodies_of(node: NodeProcess) -> dict[str, Counter[bytes]]:
    """Topic -> how often the node serves each body."""
    return {
        topic: Counter(
            record.body for queue_id in range(QUEUES) for record in node.read_queue(topic, queue_id)
        )
        for topic in TOPICS
    }
