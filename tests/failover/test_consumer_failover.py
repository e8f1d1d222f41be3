"""A consumer while masters are killed: each acknowledged message comes once, in order, and never
with another content; without a master it reads on from the slaves."""

import threading
from collections import defaultdict
from pathlib import Path
from typing import Self

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.elected_nodes import Account
from helpers.running import wait_until
from tandemlog.consume.follow_options import FollowOptions
from tandemlog_server.cli.local.drills import QUEUES, TOPIC

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

GROUP = "readers"
# longer than a failover and a machine that stands still take: a member that is missed reads
# on from its last commit, and gets what came after it again
OPTIONS = FollowOptions(wait_ms=1_000, auto_commit_ms=200, session_timeout_ms=60_000)


class Reading:
    """A consumer in a thread of its own; `with` it while things happen to the nodes. What it got,
    by queue, as (offset, body) in the order in which it came."""

    def __init__(self, endpoints: list[str], queues: range | None = None) -> None:
        """`queues`: named by hand, which needs no master; None: as a member of the group."""
        self._queues = queues
        self.got: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.fault: BaseException | None = None
        self.positions: dict[tuple[str, int], int] = {}
        self._endpoints = endpoints
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reading", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    @property
    def count(self) -> int:
        return sum(len(queue) for queue in self.got.values())

    def places(self) -> dict[tuple[int, int], bytes]:
        return {
            (queue_id, offset): body
            for queue_id, queue in list(self.got.items())
            for offset, body in list(queue)
        }

    def _read(self) -> None:
        try:
            with (
                tandemlog.Consumer(self._endpoints, group=GROUP, options=OPTIONS) as consumer,
                consumer.follow(TOPIC, queues=self._queues, start="earliest") as stream,
            ):
                while not self._end.is_set():
                    try:
                        batch = stream.next_batch(timeout_ms=200)
                    except TimeoutError:
                        continue
                    for message in batch or ():
                        self.got[message.queue_id].append((message.queue_offset, message.body))
                stream.commit()
                self.positions = stream.positions
        except BaseException as error:
            self.fault = error


def check(reading: Reading, account: Account, cluster: Elected) -> None:
    """What came is what each node holds, each message once and in order."""
    assert reading.fault is None
    for queue_id, queue in reading.got.items():
        offsets = [offset for offset, _ in queue]
        assert offsets == [*range(len(offsets))], f"queue {queue_id} came with gaps or twice"
    seen = reading.places()
    assert len(set(seen.values())) == len(seen), "a message came twice"
    for number, place in account.acknowledged.items():
        assert seen[place.queue_id, place.queue_offset] == b"%d" % number
    for node in cluster.nodes:
        held = {
            (queue_id, record.queue_offset): record.body
            for queue_id in range(QUEUES)
            for record in node.read_queue(TOPIC, queue_id)
        }
        changed = {place for place, body in seen.items() if held.get(place) != body}
        assert not changed, f"{node.node_id} has another content at {sorted(changed)[:5]}"


def test_a_consumer_gets_each_message_once_through_two_failovers(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster, Account(cluster.endpoints) as account:
        cluster.wait_in_sync(count=3)
        with Reading(cluster.endpoints) as reading:
            wait_until("the first messages", lambda: reading.count > 20, 60)
            for _ in range(2):
                master = cluster.wait_master()
                before, sent = reading.count, len(account.times)
                master.kill()
                wait_until("puts to continue", lambda n=sent: len(account.times) > n + 50, 60)  # type: ignore[misc]
                wait_until("the consumer to continue", lambda n=before: reading.count > n + 50, 60)  # type: ignore[misc]
                master.start()
                cluster.wait_all_in_sync()
            account.stop()
            places = {(each.queue_id, each.queue_offset) for each in account.acknowledged.values()}
            wait_until(
                lambda: f"the rest to arrive: {reading.fault}",
                lambda: places <= reading.places().keys(),
                60,
            )
        assert not account.failed
        cluster.wait_caught_up()
        check(reading, account, cluster)
        with tandemlog.Consumer(cluster.endpoints, group=GROUP) as again:
            assert again.committed(TOPIC) == reading.positions
            assert [*again.follow(TOPIC, until_end=True)] == []


def test_a_consumer_reads_on_from_a_slave_while_there_is_no_master(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster, Account(cluster.endpoints) as account:
        cluster.wait_in_sync(count=3)
        account.stop()
        cluster.wait_caught_up()
        cluster.tandemlog("pause")
        master = cluster.wait_master()
        master.kill()
        wait_until("the master to be missed", lambda: not cluster.masters(), 60)
        with Reading(cluster.endpoints, range(QUEUES)) as reading:
            places = {(each.queue_id, each.queue_offset) for each in account.acknowledged.values()}
            wait_until("all messages, from slaves", lambda: places <= reading.places().keys(), 60)
            assert not cluster.masters()
            master.start()
            cluster.tandemlog("resume")
            cluster.wait_master()
            with tandemlog.Producer(cluster.endpoints) as producer:
                late = producer.send(tandemlog.Message(TOPIC, b"late")).result(60)
            wait_until(
                "what comes later",
                lambda: (late.queue_id, late.queue_offset) in reading.places(),
                60,
            )
        cluster.wait_caught_up()
        check(reading, account, cluster)
