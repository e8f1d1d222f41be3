"""Readers that are ahead of a new master, on real processes: nothing that is acknowledged later is
skipped, and what is lost is said."""

import threading
from pathlib import Path
from typing import Self

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.running import wait_until
from tandemlog.consume.follow_options import FollowOptions

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

TOPIC = "orders"
OPTIONS = FollowOptions(wait_ms=500, auto_commit_ms=200)


class Reading:
    """A reader in a thread of its own, as a member of a group or by itself; `with` it."""

    def __init__(self, endpoints: list[str], group: str | None) -> None:
        self.bodies: list[bytes] = []
        self.fault: BaseException | None = None
        self.lost = 0
        self._endpoints, self._group = endpoints, group
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"reading-{group}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _read(self) -> None:
        try:
            with (
                tandemlog.Consumer(self._endpoints, group=self._group, options=OPTIONS) as consumer,
                consumer.follow(TOPIC) as stream,
            ):
                while not self._end.is_set():
                    message = stream.poll(200)
                    if message is not None:
                        self.bodies.append(message.body)
                    self.lost = stream.statistics().lost_messages
        except BaseException as error:
            self.fault = error


def put(cluster: Elected, name: str, count: int) -> list[bytes]:
    bodies = [b"%s-%d" % (name.encode(), number) for number in range(count)]
    with tandemlog.Producer(cluster.endpoints) as producer:
        producer.send_many(TOPIC, bodies)
    return bodies


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_readers_that_are_ahead_of_a_new_master(tmp_path: Path, mode: str) -> None:
    sync = mode == "sync"
    replication = {"mode": mode, "replica_lag_time_ms": 120_000}
    required = 2 if sync else 1
    with Elected(tmp_path, min_in_sync=required, replication=replication) as cluster:
        master = cluster.the_master()
        cluster.wait_in_sync(count=3)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic(TOPIC, queues=1)
        slaves = [node for node in cluster.nodes if node is not master]
        with (
            Reading(cluster.endpoints, "billing") as member,
            Reading(cluster.endpoints, None) as one,
        ):
            readers = (member, one)
            kept = put(cluster, "kept", 6)
            cluster.wait_caught_up()
            wait_until("what stays", lambda: all(len(each.bodies) == 6 for each in readers), 60)
            behind = [] if sync else slaves
            for slave in behind:
                slave.kill()
            gone = put(cluster, "gone", 7)
            wait_until("all", lambda: all(len(each.bodies) == 13 for each in readers), 60)
            master.kill()
            for slave in behind:
                slave.start()
            cluster.the_master()
            new = put(cluster, "new", 14)
            wait_until(
                "what is new",
                lambda: (
                    any(each.fault for each in readers)
                    or all(new[-1] in each.bodies for each in readers)
                ),
                90,
            )
        for each in readers:
            assert each.fault is None
            assert each.bodies[:13] == kept + gone
            assert list(dict.fromkeys(each.bodies[13:])) == new
            assert each.lost == (0 if sync else 7)
        with tandemlog.Consumer(cluster.endpoints, group="billing") as consumer:
            assert consumer.committed(TOPIC) == {(TOPIC, 0): 27 if sync else 20}
