"""A producer and a consumer of RocketMQ's own client while masters are killed; what it cost them.

    PYTHONPATH=.:tests python -m interop.classic_failover 20            prints figures of 20 rounds
    ... python -m interop.classic_failover 20 4.9.7

The clients have default settings and know all nodes as name servers. In each round the master is
killed (SIGKILL) under load, another node is elected, and the killed one comes back.
"""

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from helpers.elected import Elected
from helpers.running import free_ports, wait_until
from interop.jars import java
from interop.store_client import Talker
from tandemlog import Admin

TOPIC, QUEUES = "Orders", 4
SETTLE_S = 90.0
"""A client that lost its broker asks for another route within 30 s."""


class Clients(Talker):
    """java/Failover.java: what it saw is a dict, see there."""

    def __init__(self, name_servers: str, home: Path, version: str) -> None:
        group = f"readers-{version.replace('.', '-')}"
        command = java("Failover", name_servers, TOPIC, group, home=home, version=version)
        super().__init__(command, home)
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def mark(self) -> dict[str, Any]:
        """Measure gaps from now on."""
        return self._try("mark")

    def stats(self) -> dict[str, Any]:
        return self._try("stats")

    def stop_sending(self) -> dict[str, Any]:
        return self._try("stop")

    def wait_for_more(self, messages: int) -> None:
        """Acknowledged, and delivered to the consumer."""
        before = self.stats()
        self._wait(
            lambda now: all(
                now[each] >= before[each] + messages for each in ("acknowledged", "delivered")
            ),
            f"{messages} more messages",
        )

    def wait_for_all(self) -> dict[str, Any]:
        """Until all that was acknowledged is delivered."""
        return self._wait(lambda now: now["missing"] == 0, "what was acknowledged")

    def _wait(self, true: Any, what: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found.append(self.stats())
            return bool(true(found[-1]))

        wait_until(lambda: f"{what}, now {found[-1]}", there, SETTLE_S)
        return found[-1]


class Round(NamedTuple):
    """What one kill cost; milliseconds, and sends that failed meanwhile."""

    acknowledgement_gap_ms: float
    delivery_gap_ms: float
    failed: int


class Attempt(NamedTuple):
    """A client that tries again by itself sends the same message with another time of birth."""

    key: str
    born_timestamp: int


class Outcome(NamedTuple):
    """Of the whole run: `stored` has how often the master holds each attempt to send a key."""

    acknowledged: list[str]
    stored: Counter[Attempt]
    last: dict[str, Any]

    @property
    def lost(self) -> list[str]:
        keys = {each.key for each in self.stored}
        return [key for key in self.acknowledged if key not in keys]

    @property
    def doubled(self) -> list[Attempt]:
        """By the nodes."""
        return [each for each, times in self.stored.items() if times > 1]

    @property
    def tried_again(self) -> list[str]:
        """By the client, although the first attempt was stored."""
        attempts = Counter(each.key for each in self.stored)
        return [key for key, times in attempts.items() if times > 1]


class Drill:
    """Three nodes that elect their master, with a door for RocketMQ's clients each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster = Elected(folder)
        nodes = self._cluster.nodes
        ports = free_ports(len(nodes))
        for node, port in zip(nodes, ports, strict=True):
            node.settings["rocketmq_clients"] = {"listen": f"127.0.0.1:{port}"}
        self.name_servers = ";".join(f"127.0.0.1:{port}" for port in ports)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        self._cluster.the_master()
        self._cluster.wait_in_sync(count=3)
        with Admin(self._cluster.endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def clients(self, version: str) -> Clients:
        return Clients(self.name_servers, self._folder / f"clients-{version}", version)

    def kill_masters(self, clients: Clients, rounds: int) -> Iterator[Round]:
        clients.wait_for_more(200)
        for _ in range(rounds):
            self._cluster.wait_in_sync(count=3)
            master = self._cluster.the_master()
            before = sum(clients.mark()["failed"].values())
            master.kill()
            clients.wait_for_more(200)
            self._cluster.the_master()
            time.sleep(1)  # for clients that notice later
            clients.wait_for_more(200)
            now = clients.stats()
            yield Round(
                now["acknowledgement_gap_ms"],
                now["delivery_gap_ms"],
                sum(now["failed"].values()) - before,
            )
            master.start()

    def end(self, clients: Clients) -> Outcome:
        """Stop sending, wait for the last deliveries, and count what the master has."""
        clients.stop_sending()
        last = clients.wait_for_all()
        master = self._cluster.the_master()
        stored = Counter(
            Attempt(record.body.decode(), record.born_timestamp)
            for queue_id in range(QUEUES)
            for record in master.read_queue(TOPIC, queue_id)
        )
        return Outcome(last.pop("acknowledged_keys"), stored, last)


def main() -> None:
    rounds, versions = int(sys.argv[1]), sys.argv[2:] or ["5.5.0", "4.9.7"]
    for version in versions:
        with (
            tempfile.TemporaryDirectory() as name,
            Drill(Path(name)) as drill,
            drill.clients(version) as clients,
        ):
            found = []
            for each in drill.kill_masters(clients, rounds):
                found.append(each)
                print(version, each, flush=True)
            outcome = drill.end(clients)
        for what in ("acknowledgement_gap_ms", "delivery_gap_ms"):
            gaps = [getattr(each, what) for each in found]
            print(version, what, f"median {statistics.median(gaps)}, longest {max(gaps)}")
        print(
            version,
            f"acknowledged {len(outcome.acknowledged)}, lost {len(outcome.lost)}, "
            f"doubled {len(outcome.doubled)}, failed {outcome.last['failed']}, "
            f"tried again by the client {len(outcome.tried_again)}, "
            f"delivered again {outcome.last['repeated']}",
        )


if __name__ == "__main__":
    main()
