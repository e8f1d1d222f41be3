"""Messages that come later, on three nodes that elect: killed, paused and switched under load.

Each acknowledged message comes once, on every node, and not before its time; one whose recall was
acknowledged never comes.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.elected import Elected
from helpers.elected_nodes import SETTLE_S
from helpers.master_faults import FAULTS
from helpers.running import wait_until
from tandemlog import Admin, Message, Producer, SendResult, TandemlogError
from tandemlog.errors import NotWaitingError

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

TOPIC, QUEUES = "later", 4
DELAYS_S = (0.05, 0.4, 1.5, 4.0)


class Senders:
    """One thread that sends messages to come later, and calls back every seventh."""

    def __init__(self, endpoints: list[str]) -> None:
        self.acknowledged: dict[bytes, SendResult] = {}
        self.recalled: set[bytes] = set()
        self.doubtful: set[bytes] = set()
        self._endpoints = endpoints
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Senders":
        with Admin(self._endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        self._thread.start()
        self.wait_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(SETTLE_S)

    def wait_more(self) -> None:
        before = len(self.acknowledged)
        wait_until("puts", lambda: len(self.acknowledged) > before + 60, SETTLE_S)

    def _run(self) -> None:
        number = 0
        with Producer(self._endpoints) as producer:
            while not self._end.is_set():
                sent = []
                for _ in range(8):
                    number += 1
                    delay = timedelta(seconds=DELAYS_S[number % len(DELAYS_S)])
                    body = b"%d" % number
                    sent.append((body, producer.send(Message(TOPIC, body), delay=delay)))
                for body, future in sent:
                    with contextlib.suppress(TandemlogError):
                        self.acknowledged[body] = future.result(SETTLE_S)
                    if int(body) % 7 == 0 and body in self.acknowledged:
                        self._recall(producer, body)
                self._end.wait(0.01)

    def _recall(self, producer: Producer, body: bytes) -> None:
        handle = self.acknowledged[body].recall_handle
        assert handle is not None
        try:
            producer.recall(TOPIC, handle)
            self.recalled.add(body)
        except NotWaitingError:
            pass  # it came before, and so it comes
        except TandemlogError:
            self.doubtful.add(body)

    def check(self, nodes: Elected) -> None:
        """Once nothing waits any more."""
        due = [body for body in self.acknowledged if body not in self.recalled | self.doubtful]

        def all_came() -> bool:
            master = nodes.wait_master()
            came = {
                record.body
                for queue_id in range(QUEUES)
                for record in master.read_queue(TOPIC, queue_id)
            }
            return came.issuperset(due)

        wait_until("every message that was acknowledged to come", all_came, SETTLE_S)
        nodes.wait_caught_up()
        for node in nodes.nodes:
            records = [
                record for queue_id in range(QUEUES) for record in node.read_queue(TOPIC, queue_id)
            ]
            times = Counter(record.body for record in records)
            twice = [body for body, count in times.items() if count > 1]
            assert not twice, f"{node.node_id}: {len(twice)} came twice: {twice[:5]}"
            back = self.recalled & times.keys()
            assert not back, f"{node.node_id}: {len(back)} were called back, and came"
            early = [
                record.body
                for record in records
                if (sent := self.acknowledged.get(record.body)) is not None
                and sent.deliver_at_ms is not None
                and record.store_timestamp < sent.deliver_at_ms
            ]
            assert not early, f"{node.node_id}: {len(early)} came too early: {early[:5]}"


@pytest.mark.parametrize("fault", FAULTS)
def test_each_comes_once_whatever_happens_to_the_master(
    tmp_path: Path, fault: Callable[[Elected], None]
) -> None:
    with Elected(tmp_path) as nodes:
        nodes.wait_all_in_sync()
        with Senders(nodes.endpoints) as senders:
            for _ in range(2):
                fault(nodes)
                senders.wait_more()
                nodes.wait_all_in_sync()
        assert senders.recalled
        senders.check(nodes)
