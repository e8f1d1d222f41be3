"""Work on queues while the master is killed, paused and switched: every message is done or a dead
letter, and one whose acknowledgement was confirmed does not come again.

Two groups work on the same messages, one of them in the order of each queue.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.elected_nodes import SETTLE_S, Account
from helpers.master_faults import kill, switch
from helpers.running import wait_until
from tandemlog import ConnectionOptions, Delivery, WorkOptions, errors
from tandemlog_server.cli.local.drills import TOPIC

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

OPTIONS = WorkOptions(wait_ms=5_000)
TO_RETRY, TO_REJECT, TO_EXHAUST = 11, 13, 47
"""Every so manieth message is tried again, is rejected, or fails each time."""
ATTEMPTS = 5
PATIENT = ConnectionOptions(request_timeout_ms=40_000)
NOTICED_S = 10.0
"""Acknowledgements are confirmed again so soon after the next master leads, on a machine that has
other work too. A call that waited for its own time to end would need the rest of 40 s."""
HANDED_OVER_S = 1.0
"""In which a message that was taken for a handler reaches that handler's thread, on such a machine:
taken before its other copy was confirmed, it may still come. The next master leases messages again
that the last one had leased; what is confirmed goes back to no one."""


def is_given_up(number: int) -> bool:
    """Whether this message ends as a dead letter."""
    return number % TO_REJECT == 0 or number % TO_EXHAUST == 0


class Working:
    """Handlers in threads; `with` it while things happen to the nodes. `done`: when the
    acknowledgement of each body was confirmed; `again`: the bodies that came after that; `dead`:
    those that were rejected, or failed in the last attempt."""

    def __init__(self, endpoints: list[str], group: str, *, ordered: bool = False) -> None:
        self.group = group
        self.done: dict[bytes, float] = {}
        self.dead: set[bytes] = set()
        self.again: list[bytes] = []
        self.attempts: dict[bytes, int] = defaultdict(int)
        self.out_of_order: list[tuple[int, int]] = []
        self.times: list[float] = []
        self.fault: BaseException | None = None
        self._last: dict[int, int] = {}
        self._ordered = ordered
        self._lock = threading.Lock()
        self._consumer = tandemlog.Consumer(endpoints, group=group, connection=PATIENT)
        self.work = self._consumer.work(
            TOPIC, handler=self._handle, concurrency=4, lease=20, options=OPTIONS,
            ordered=ordered, max_attempts=ATTEMPTS, backoff=(0.02,),
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.work.stop()
        self._thread.join(SETTLE_S)
        self._consumer.close()

    def _run(self) -> None:
        try:
            self.work.run()
        except BaseException as error:
            self.fault = error

    def _handle(self, delivery: Delivery) -> None:
        body, number = delivery.body, int(delivery.body)
        with self._lock:
            if time.monotonic() > self.done.get(body, math.inf) + HANDED_OVER_S:
                self.again.append(body)
            self.attempts[body] = max(self.attempts[body], delivery.attempt)
            place = delivery.message
            # what was given up comes twice if the master is lost before that is in the log
            behind = place.queue_offset < self._last.get(place.queue_id, -1)
            if behind and not is_given_up(number):
                self.out_of_order.append((place.queue_id, place.queue_offset))
        if number % TO_REJECT == 0:
            self._is_dead(body)
            raise tandemlog.Reject("not wanted")
        if number % TO_EXHAUST == 0:
            if delivery.attempt >= ATTEMPTS:
                self._is_dead(body)
            raise ValueError("never")
        if number % TO_RETRY == 0 and delivery.attempt == 1:
            raise tandemlog.RetryAfter(0.05, "later")
        try:
            delivery.ack(sync=True)
        except errors.TandemlogError:
            return  # it comes again
        with self._lock:
            now = time.monotonic()
            self.done.setdefault(body, now)
            self.times.append(now)
            if self._ordered:
                last = self._last.get(place.queue_id, -1)
                self._last[place.queue_id] = max(last, place.queue_offset)

    def _is_dead(self, body: bytes) -> None:
        with self._lock:
            self.dead.add(body)

    @property
    def ended(self) -> set[bytes]:
        return self.done.keys() | self.dead

    def wait_more(self) -> None:
        before = len(self.ended)
        wait_until(
            lambda: f"{self.group} to go on: {self.fault}, {self.work.statistics()}",
            lambda: len(self.ended) > before + 50,
            SETTLE_S,
        )

    def wait_confirmed(self, since: float) -> float:
        """Seconds from `since` (monotonic) to the first acknowledgement after it."""
        wait_until(
            lambda: f"an acknowledgement of {self.group}: {self.fault}",
            lambda: self.times[-1] > since,
            SETTLE_S,
        )
        return min(each - since for each in list(self.times) if each > since)

    def letters(self, cluster: Elected) -> Counter[bytes]:
        """The bodies of all dead letters, by the master."""
        master = cluster.wait_master()
        return Counter(each.body for each in master.read_queue(f"%DLQ%{self.group}", 0))

    def check(self, wanted: set[bytes], cluster: Elected) -> None:
        def rest() -> list[bytes]:
            return sorted(wanted - self.done.keys() - self.letters(cluster).keys())

        wait_until(
            lambda: f"{rest()[:5]} of {self.group}: {self.fault}, {self.work.statistics()}",
            lambda: not rest(),
            SETTLE_S,
        )
        dead = {body for body in wanted if is_given_up(int(body))}
        with tandemlog.WorkAdmin(cluster.endpoints) as admin:

            def settled() -> bool:
                found = admin.group_work(self.group)
                return (found.leased, found.ready, found.waiting_retry) == (0, 0, 0)

            wait_until(f"nothing to be left of {self.group}", settled, SETTLE_S)
        letters = self.letters(cluster)
        assert self.fault is None
        assert self.again == [], "these came after their acknowledgement was confirmed"
        assert dead <= letters.keys(), "a dead letter is lost"
        assert all(is_given_up(int(body)) for body in letters)
        assert max(letters.values()) <= 2, letters.most_common(3)
        assert not letters.keys() & self.done.keys()
        tried_again = [body for body in self.done if int(body) % TO_RETRY == 0]
        assert all(self.attempts[body] > 1 for body in tried_again)
        assert self.out_of_order == []


def stand_still(cluster: Elected, all_working: Sequence[Working]) -> None:
    """The master, until the next one leads and the consumers have found that one; then it goes on,
    and still believes to be the master."""
    master = cluster.wait_master()
    master.pause()
    cluster.wait_master(other_than=master)
    led = time.monotonic()
    noticed = [each.wait_confirmed(led) for each in all_working]
    master.resume()
    assert max(noticed) < NOTICED_S, noticed


def test_each_message_ends_whatever_happens_to_the_master(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster, Account(cluster.endpoints) as account:
        cluster.wait_in_sync(count=3)
        with (
            Working(cluster.endpoints, "workers") as workers,
            Working(cluster.endpoints, "in-order", ordered=True) as in_order,
        ):
            both = workers, in_order
            for fault in (partial(stand_still, all_working=both), kill, switch):
                for working in both:
                    working.wait_more()
                fault(cluster)
                cluster.wait_all_in_sync()
            for working in both:
                working.wait_more()
            account.stop()
            wanted = {b"%d" % number for number in account.acknowledged}
            for working in both:
                working.check(wanted, cluster)
