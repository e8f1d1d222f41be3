"""All nodes are well and the coordinator is away: puts, groups and commits go on, and a load
balancer still finds the master."""

import threading
import time
import urllib.request
from pathlib import Path
from typing import Self

import pytest

from helpers.elected import Elected
from helpers.running import NodeProcess, wait_until
from tandemlog import Admin, Consumer, FollowOptions, Message, Producer, TandemlogError

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

TOPIC, GROUP, QUEUES = "jobs", "work", 6
SESSION_S = 20.0
"""Longer than a machine that others share may stand still."""
AWAY_S = 60.0
"""Several leases and sessions long: who was not heard in the meantime has lost its queues."""


class Member:
    """A consumer of the group in a thread: what it handled, lost, and could not commit."""

    def __init__(self, endpoints: list[str]) -> None:
        self.handled: list[bytes] = []
        self.committed_at = 0.0
        self.owned: set[int] = set()
        self.lost: list[str] = []
        self.failed: list[str] = []
        self._endpoints = endpoints
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _gave(self, how: str) -> object:
        def note(_: object, queues: list[tuple[str, int]]) -> None:
            self.owned -= {queue_id for _, queue_id in queues}
            self.lost += [f"{how} {queue_id} at {time.monotonic():.1f}" for _, queue_id in queues]

        return note

    def _work(self) -> None:
        options = FollowOptions(
            auto_commit_ms=None, session_timeout_ms=round(1000 * SESSION_S), wait_ms=500
        )

        def got(_: object, queues: list[tuple[str, int]]) -> None:
            self.owned |= {queue_id for _, queue_id in queues}

        with Consumer(self._endpoints, group=GROUP, options=options) as consumer:
            stream = consumer.follow(
                TOPIC,
                on_assigned=got,
                on_revoked=self._gave("revoked"),  # type: ignore[arg-type]
                on_lost=self._gave("lost"),  # type: ignore[arg-type]
            )
            with stream:
                while not self._end.is_set():
                    message = stream.poll(200)
                    if message is None:
                        continue
                    self.handled.append(bytes(message.body))
                    try:
                        stream.commit(message)
                        self.committed_at = time.monotonic()
                    except TandemlogError as error:
                        self.failed.append(str(error))


class Puts:
    """One message after the other, until it is left; `acknowledged` in their order."""

    def __init__(self, endpoints: list[str]) -> None:
        self.acknowledged: list[bytes] = []
        self._endpoints = endpoints
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _work(self) -> None:
        number = 0
        with Producer(self._endpoints) as producer:
            while not self._end.wait(0.05):
                body = b"%d" % number
                producer.send(Message(TOPIC, body, queue_id=number % QUEUES)).result(60)
                self.acknowledged.append(body)
                number += 1


def is_master(node: NodeProcess) -> bool:
    return node.http_status("/master") == 200


def can_ack(node: NodeProcess) -> bool:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    (line,) = [each for each in text.splitlines() if each.startswith("tandemlog_can_ack{")]
    return float(line.rsplit(" ", 1)[1]) == 1


def test_puts_groups_and_the_load_balancer_go_on(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        endpoints = cluster.endpoints
        with Admin(endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        members = [Member(endpoints) for _ in range(3)]
        with Puts(endpoints) as puts, members[0], members[1], members[2]:
            wait_until(
                "each member to have its share",
                lambda: [len(each.owned) for each in members] == [2, 2, 2],
                60,
            )
            wait_until("commits", lambda: all(each.committed_at for each in members), 60)
            master = cluster.wait_master()
            for each in members:
                each.lost.clear()  # what they gave up to each other as they joined
            cluster.coordinator.kill()
            gone = time.monotonic()
            before = len(puts.acknowledged)
            while time.monotonic() < gone + AWAY_S:
                found = [each.node_id for each in cluster.nodes if is_master(each)]
                assert found == [master.node_id], f"{time.monotonic() - gone:.1f} s after"
                time.sleep(0.5)  # a sample of the time without a coordinator
            assert [each.lost for each in members] == [[], [], []]
            assert [each.failed for each in members] == [[], [], []]
            wait_until(
                "the master alone to say that it acknowledges",
                lambda: [n.node_id for n in cluster.nodes if can_ack(n)] == [master.node_id],
            )
            assert all(each.committed_at > gone + AWAY_S - SESSION_S for each in members)
            assert len(puts.acknowledged) > before + 5 * AWAY_S
            done = list(puts.acknowledged)
            wait_until(
                "each message to be handled",
                lambda: set(done) <= {body for each in members for body in each.handled},
                60,
            )
        handled = [body for each in members for body in each.handled]
        assert len(handled) == len(set(handled)), "one was handled twice"
