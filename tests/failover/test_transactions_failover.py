"""Transactions while the master is killed, stands still longer than its lease, and hands over.

Each has one outcome on every node: a commit that was acknowledged is visible once, what was rolled
back never is, one whose end is not known is there as a whole or not at all. What no client has
decided ends as configured. What is copied from topic to topic, with the offsets of its reader, is
there once.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Self

import pytest

from helpers.elected import Elected
from helpers.elected_nodes import SETTLE_S, Account
from helpers.master_faults import FAULTS
from helpers.running import NodeProcess, wait_until
from tandemlog import (
    COMMITTED,
    EARLIEST,
    Admin,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    Stream,
    TandemlogError,
)
from tandemlog.errors import OutcomeUnknownError
from tandemlog.format.constants import UNDECIDED_TOPIC
from tandemlog_server.cli.local.drills import TOPIC

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

OUT, MORE, COPIES = "out", "more", "copies"
QUEUES = {OUT: 4, MORE: 2, COPIES: 2}
GROUP = "copying"
UNDECIDED_EVERY = 9
CHECKS = {"check_after_ms": 8_000, "check_interval_ms": 500, "max_checks": 1}
"""Later than a change of master takes: what is checked was left open, or its producer was cut off
for long."""
BY_HAND = FollowOptions(auto_commit_ms=None, wait_ms=1_000, session_timeout_ms=60_000)


def parts(number: int) -> list[Message]:
    """Of one transaction; two topics, several queues."""
    body = b"%d" % number
    return [Message(OUT, body + b".0"), Message(MORE, body + b".1"), Message(OUT, body + b".2")]


def bodies_of(node: NodeProcess, *topics: str) -> list[bytes]:
    return [
        record.body
        for topic in topics
        for queue_id in range(QUEUES.get(topic, 1))
        for record in node.read_queue(topic, queue_id)
    ]


class InThread(ABC):
    """Runs until the block ends; `with` it while things happen to the nodes."""

    def __init__(self, endpoints: list[str]) -> None:
        self.endpoints = endpoints
        self.fault: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(SETTLE_S)

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.fault = error

    @abstractmethod
    def run(self) -> None:
        """What the thread does, until `_end` is set."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How much of it is done, for `wait_more`."""

    def wait_more(self, count: int) -> None:
        before = self.count
        wait_until(
            lambda: f"{type(self).__name__} to go on: {self.fault}",
            lambda: self.count > before + count,
            SETTLE_S,
        )


class Deciding(InThread):
    """Begins transactions, and in turn commits them, rolls them back, and forgets some."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(endpoints)
        self.committed: set[int] = set()
        self.not_committed: set[int] = set()
        self.left_open: set[int] = set()
        self.unknown: set[int] = set()

    @property
    def count(self) -> int:
        return len(self.committed)

    def run(self) -> None:
        number = 0
        with Producer(self.endpoints) as producer:
            while not self._end.is_set():
                number += 1
                self._one(producer, number)

    def _one(self, producer: Producer, number: int) -> None:
        commits = number % 3 != 0
        try:
            transaction = producer.transaction(parts(number)).__enter__()
            if number % UNDECIDED_EVERY == 1:
                self.left_open.add(number)
                return
            if commits:
                transaction.commit()
                self.committed.add(number)
            else:
                transaction.rollback()
                self.not_committed.add(number)
        except OutcomeUnknownError:
            (self.unknown if commits else self.not_committed).add(number)
        except TandemlogError:
            self.not_committed.add(number)  # it was refused, or a check was faster


class Copying(InThread):
    """Consumes, transforms, produces: what is sent and the offsets are one transaction."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(endpoints)
        self.copied = 0

    @property
    def count(self) -> int:
        return self.copied

    def run(self) -> None:
        with (
            Producer(self.endpoints) as producer,
            Consumer(self.endpoints, group=GROUP, options=BY_HAND) as consumer,
            consumer.follow(TOPIC, start=EARLIEST) as stream,
        ):
            while not self._end.is_set():
                try:
                    batch = stream.next_batch(timeout_ms=200)
                except TimeoutError:
                    continue
                try:
                    with producer.transaction() as t:
                        for message in batch or ():
                            t.send(Message(COPIES, message.body))
                        t.commit_offsets(stream)
                except TandemlogError:
                    self._begin_again(stream)
                else:
                    self.copied += len(batch or ())

    def _begin_again(self, stream: Stream) -> None:
        for queue in sorted(stream.assignment):
            stream.seek(queue, COMMITTED)


def check(cluster: Elected, deciding: Deciding, account: Account) -> None:
    """Once nothing is open any more."""
    wanted = {b"%d" % number for number in account.acknowledged}
    wait_until(
        "every message to be copied",
        lambda: wanted <= set(bodies_of(cluster.wait_master(), COPIES)),
        SETTLE_S,
    )
    with Admin(cluster.endpoints) as admin:
        wait_until("every transaction to have ended", lambda: not admin.transactions(), SETTLE_S)
    cluster.wait_caught_up()
    for node in cluster.nodes:
        found = Counter(bodies_of(node, OUT, MORE))
        twice = [body for body, count in found.items() if count > 1]
        assert not twice, f"{node.node_id}: {len(twice)} came twice: {twice[:5]}"
        of = {
            number: sum(part.body in found for part in parts(number))
            for number in chain(
                deciding.committed, deciding.not_committed, deciding.left_open, deciding.unknown
            )
        }
        lost = [number for number in deciding.committed if of[number] != 3]
        assert not lost, f"{node.node_id}: committed, and not all there: {lost[:5]}"
        never = [number for number in deciding.not_committed | deciding.left_open if of[number]]
        assert not never, f"{node.node_id}: not committed, and there: {never[:5]}"
        torn = [number for number in deciding.unknown if of[number] not in (0, 3)]
        assert not torn, f"{node.node_id}: neither all nor nothing: {torn[:5]}"
        copies = Counter(bodies_of(node, COPIES))
        again = [body for body, count in copies.items() if count > 1]
        assert not again, f"{node.node_id}: {len(again)} copied twice: {again[:5]}"
        given_up = set(bodies_of(node, UNDECIDED_TOPIC))
        first = {parts(number)[0].body for number in deciding.left_open}
        assert first <= given_up, f"{node.node_id}: no copy of what was given up"


def test_a_transaction_has_one_outcome_whatever_happens_to_the_master(tmp_path: Path) -> None:
    cluster = Elected(tmp_path)
    for node in cluster.nodes:
        node.settings["transactions"] = CHECKS
    with cluster, Account(cluster.endpoints) as account:
        cluster.wait_in_sync(count=3)
        with Admin(cluster.endpoints) as admin:
            for topic, queues in QUEUES.items():
                admin.create_topic(topic, queues)
        with Copying(cluster.endpoints) as copying:
            with Deciding(cluster.endpoints) as deciding:
                for fault in FAULTS:
                    deciding.wait_more(20)
                    copying.wait_more(20)
                    fault(cluster)
                    cluster.wait_all_in_sync()
                deciding.wait_more(20)
                copying.wait_more(20)
            account.stop()
            check(cluster, deciding, account)
        assert deciding.fault is None
        assert copying.fault is None
        assert deciding.left_open
        assert len(deciding.committed) > len(deciding.unknown)
