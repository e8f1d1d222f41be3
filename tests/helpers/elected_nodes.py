"""Three nodes that elect their master, as real processes, and a client that keeps account.

ElectedNodes   nodes n0 .. n2 by a coordinator; who leads, which epoch
Account        a producer thread: what was acknowledged, when, and which puts failed
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from helpers.running import LOOPBACK, SMALL, NodeProcess, Place, free_ports, wait_until
from tandemlog import Admin
from tandemlog_server.cli.local.drills import QUEUES, TOPIC, Load

SETTLE_S = 120.0
"""For what takes seconds on an idle machine."""
REST_S = 0.01
"""Between two puts of an account: what is tested is not speed, and all nodes share one machine."""


class ElectedNodes:
    """See the module. Every node must be up before the first election. `places` has one for each
    node, if they are not on loopback; `ways` the endpoint by which each node reaches the
    coordinator, where they differ."""

    def __init__(
        self,
        folder: Path,
        coordinator: Sequence[str],
        *,
        count: int = 3,
        min_in_sync: int = 2,
        replication: Mapping[str, Any] | None = None,
        places: Sequence[Place] = (),
        lease_ttl_s: float | None = None,
        ways: Sequence[str] = (),
    ) -> None:
        lease = {} if lease_ttl_s is None else {"lease_ttl_s": lease_ttl_s}
        ports = free_ports(2 * count)
        names = [f"n{number}" for number in range(count)]
        self.nodes: list[NodeProcess] = []
        for number, (name, place) in enumerate(
            zip(names, places or [LOOPBACK] * count, strict=True)
        ):
            settings: dict[str, Any] = {
                "cluster_id": "test",
                "node_id": name,
                "insecure": place is not LOOPBACK,
                "listen": f"{place.host}:{ports[2 * number]}",
                "http_listen": f"{place.host}:{ports[2 * number + 1]}",
                "coordinator": {
                    "endpoints": [ways[number]] if ways else list(coordinator),
                    "members": names,
                    **lease,
                },
                "store": {"directory": folder / name / "store", **SMALL},
                "replication": {
                    "mode": "sync",
                    "min_in_sync": min_in_sync,
                    **(replication or {}),
                },
            }
            self.nodes.append(NodeProcess(folder / name, settings, place.wrapper))

    @property
    def endpoints(self) -> list[str]:
        return [node.endpoint for node in self.nodes]

    def master(self) -> NodeProcess | None:
        """The node that could acknowledge a put now, by its own HTTP endpoint."""
        return next(
            (node for node in self.nodes if node.alive and node.http_status("/master") == 200), None
        )

    def wait_master(self, other_than: NodeProcess | None = None) -> NodeProcess:
        found: list[NodeProcess] = []

        def there() -> bool:
            master = self.master()
            if master is not None and master is not other_than:
                found.append(master)
            return bool(found)

        wait_until("a master that acknowledges", there, SETTLE_S)
        return found[0]

    def all_in_sync(self) -> bool:
        """Whether the master counts every node in, and each of them follows it."""
        master = self.master()
        leading = None if master is None else master.status()
        if master is None or leading is None:
            return False
        states = [node.status() for node in self.nodes]
        return all(
            state is not None and state.epoch == leading.epoch and state.in_sync for state in states
        )

    def wait_all_in_sync(self) -> None:
        wait_until("every node to be in sync", self.all_in_sync, SETTLE_S)

    def wait_caught_up(self) -> None:
        """Until every node has dispatched what the master holds now; after the last put."""
        self.wait_all_in_sync()
        leading = self.wait_master().status()
        assert leading is not None

        def settled() -> bool:
            states = [node.status() for node in self.nodes]
            return all(
                state is not None and state.reput_offset >= leading.wrote_offset for state in states
            )

        wait_until("every node to hold and dispatch the same", settled, SETTLE_S)

    def epoch(self, node: NodeProcess) -> int:
        status = node.status()
        assert status is not None, f"{node.node_id} does not answer:\n{node.tail()}"
        return status.epoch

    def __enter__(self) -> "ElectedNodes":
        try:
            for node in self.nodes:
                node.start(wait=False)
            self.wait_master()
            self.wait_all_in_sync()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()


class Account(Load):
    """The load of a drill; `with` it while things happen to the nodes."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(endpoints, rest_s=REST_S)
        self._admin_endpoints = endpoints

    def __enter__(self) -> Self:
        with Admin(self._admin_endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        super().__enter__()
        wait_until("the first acknowledged puts", lambda: len(self.times) > 20, SETTLE_S)
        return self

    def wait_more(self, after: float) -> None:
        """Until puts are acknowledged that were sent well after `after` (monotonic seconds)."""
        wait_until(
            lambda: f"puts to be acknowledged again, {len(self.failed)} failed",
            lambda: sum(t > after for t in self.times) > 20,
            SETTLE_S,
        )

    def longest_gap(self) -> float:
        """Seconds between two acknowledgements."""
        return self.longest_gap_since(0.0)

    def check(self, nodes: ElectedNodes) -> None:
        """Each node has each acknowledged message once, at the place that was acknowledged, and no
        message twice."""
        nodes.wait_caught_up()
        for node in nodes.nodes:
            held = {
                (queue_id, record.queue_offset): record.body
                for queue_id in range(QUEUES)
                for record in node.read_queue(TOPIC, queue_id)
            }
            assert len(set(held.values())) == len(held), f"{node.node_id} has a message twice"
            for number, place in self.acknowledged.items():
                found = held.get((place.queue_id, place.queue_offset))
                assert found == str(number).encode(), (
                    f"{node.node_id} has {found!r} at {place}, where {number} was acknowledged"
                )
