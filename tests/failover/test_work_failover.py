"""Work on a queue while masters are killed: every message is done, and one whose acknowledgement
was confirmed does not come again."""

import threading
from pathlib import Path
from typing import Self

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.elected_nodes import Account
from helpers.running import wait_until
from tandemlog import Delivery, WorkOptions, errors
from tandemlog_server.cli.local.drills import TOPIC

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

GROUP = "workers"
OPTIONS = WorkOptions(wait_ms=1_000)


class Working:
    """Handlers in threads; `with` it while things happen to the nodes. `done`: the bodies whose
    acknowledgement was confirmed, `again`: those that came after that."""

    def __init__(self, endpoints: list[str]) -> None:
        self.done: set[bytes] = set()
        self.again: list[bytes] = []
        self.unknown = 0
        self.fault: BaseException | None = None
        self._lock = threading.Lock()
        self._consumer = tandemlog.Consumer(endpoints, group=GROUP)
        self.work = self._consumer.work(
            TOPIC, handler=self._handle, concurrency=4, lease=20, options=OPTIONS
        )
        self._thread = threading.Thread(target=self._run, name="working", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.work.stop()
        self._thread.join(60)
        self._consumer.close()

    def _run(self) -> None:
        try:
            self.work.run()
        except BaseException as error:
            self.fault = error

    def _handle(self, delivery: Delivery) -> None:
        body = delivery.body
        with self._lock:
            if body in self.done:
                self.again.append(body)
        try:
            delivery.ack(sync=True)
        except errors.TandemlogError:
            self.unknown += 1  # it comes again
            return
        with self._lock:
            self.done.add(body)


def test_each_message_is_done_through_two_failovers(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster, Account(cluster.endpoints) as account:
        cluster.wait_in_sync(count=3)
        with Working(cluster.endpoints) as working:
            wait_until("the first messages", lambda: len(working.done) > 20, 60)
            for _ in range(2):
                master = cluster.wait_master()
                before = len(working.done)
                master.kill()
                wait_until(
                    lambda: f"work to continue: {working.fault}",
                    lambda n=before: len(working.done) > n + 50,  # type: ignore[misc]
                    60,
                )
                master.start()
                cluster.wait_all_in_sync()
            account.stop()
            wanted = {b"%d" % number for number in account.acknowledged}
            wait_until(
                lambda: f"the rest to be done: {working.fault}, {working.work.statistics()}",
                lambda: wanted <= working.done,
                60,
            )
        assert working.fault is None
        assert working.again == []
        with tandemlog.WorkAdmin(cluster.endpoints) as admin:
            found = admin.group_work(GROUP)
        assert (found.leased, found.ready, found.dead_letters) == (0, 0, 0)
