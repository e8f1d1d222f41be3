"""A producer and a consumer of RocketMQ's own clients while masters fail; what it cost them.

    PYTHONPATH=.:tests python -m interop.failover_drill 20              prints figures of 20 kills
    ... python -m interop.failover_drill --fault stop 20 4.9.7 go       failover_clients.py has all

    kill         SIGKILL; the node comes back
    stop         SIGSTOP, until another one leads and clients have gone on
    switchover   a planned one, to another node
    partition    the master hears and reaches nobody, its clients included; needs root

The clients have default settings and know all nodes, but Node.js's, which takes one. They are under
load in each round. Between two rounds is a rest of more than the 30 s after which a client asks for
a route again: a second failure before that is another question than the first one.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from chaos.network import CLIENT, Network
from helpers import forked
from helpers.coordinators import EmbeddedProcess
from helpers.elected_nodes import ElectedNodes
from helpers.running import LOOPBACK, NodeProcess, free_ports
from interop.failover_clients import (
    POP,
    SETTLE_S,
    Addresses,
    Clients,
    Seen,
    names_of,
    program,
)
from tandemlog import Admin
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.client import RemotingClient

QUEUES = 4
REST_S = 31.0
MORE = 200
FAULTS = ("kill", "stop", "switchover", "partition")
NODES, COORDINATOR = ("n0", "n1", "n2"), "c0"


class Round(NamedTuple):
    """What one fault cost; milliseconds, and sends that failed meanwhile."""

    acknowledgement_gap_ms: int
    delivery_gap_ms: int
    failed: int


class Attempt(NamedTuple):
    """A client that tries again by itself sends the same message with another time of birth."""

    key: str
    born_timestamp: int


class Outcome(NamedTuple):
    """Of the whole run: `stored` has how often the master holds each attempt to send a key."""

    stored: Counter[Attempt]
    last: Seen

    @property
    def lost(self) -> list[str]:
        keys = {each.key for each in self.stored}
        return [key for key in self.last.acknowledged if key not in keys]

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
    """Three nodes that elect their master, with a door for RocketMQ's clients each. `separable`:
    each on a machine of its own, which can be cut off."""

    def __init__(self, folder: Path, *, separable: bool = False) -> None:
        self._folder = folder
        self._undo = contextlib.ExitStack()
        self._network = Network([*NODES, COORDINATOR]) if separable else None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _start(self) -> None:
        places, at = [LOOPBACK] * len(NODES), LOOPBACK
        if self._network is not None:
            self._undo.enter_context(self._network)
            places = [self._network.place(name) for name in NODES]
            at = self._network.place(COORDINATOR)
        coordinator = EmbeddedProcess(self._folder / "coordinator", place=at)
        self._undo.enter_context(coordinator)
        self._cluster = ElectedNodes(self._folder, [coordinator.endpoint], places=places)
        ports = free_ports(2 * len(NODES))
        listens = [f"{place.host}:{ports.pop()}" for place in places]
        grpc_listens = [f"{place.host}:{ports.pop()}" for place in places]
        for node, *both in zip(self._cluster.nodes, listens, grpc_listens, strict=True):
            node.settings["rocketmq_clients"] = dict(
                zip(("listen", "grpc_listen"), both, strict=True)
            )
        self._addresses = Addresses(";".join(listens), ";".join(grpc_listens))
        self._undo.enter_context(self._cluster)
        self._cluster.wait_all_in_sync()

    def clients(self, client: str) -> Clients:
        """See failover_clients.py."""
        names = names_of(client)
        with Admin(self._cluster.endpoints) as admin:
            admin.create_topic(names.topic, QUEUES)
        if client == POP:
            asyncio.run(self._let_pop(*names))
        home = self._folder / f"clients-{client}"
        return Clients(program(client, self._addresses, home), names.topic)

    async def _let_pop(self, topic: str, group: str) -> None:
        mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
        host, port = self._addresses.name_servers.split(";")[0].split(":")
        async with RemotingClient(host, int(port)) as client:
            await client.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())

    def rounds(
        self,
        clients: Clients,
        count: int,
        *,
        fault: str = "kill",
        rest_s: float = 0.0,
        more: int = MORE,
    ) -> Iterator[Round]:
        """Let the master fail so often. Each round ends when the cluster is whole again; clients
        have gone on if `more` messages came."""
        clients.wait_for_more(more)
        for _ in range(count):
            self._cluster.wait_all_in_sync()
            time.sleep(rest_s)
            master = self._cluster.wait_master()
            before = clients.mark().failed.total()
            with self._failed(master, fault):
                clients.wait_for_more(more)
                self._cluster.wait_master(other_than=master)
                time.sleep(1)  # for clients that notice later
                clients.wait_for_more(more)
                now = clients.seen()
            yield Round(
                now.acknowledgement_gap_ms,
                now.delivery_gap_ms,
                now.failed.total() - before,
            )

    @contextlib.contextmanager
    def _failed(self, master: NodeProcess, fault: str) -> Iterator[None]:
        if fault == "kill":
            master.kill()
            yield
            master.start()
        elif fault == "stop":
            master.pause()
            yield
            master.resume()
        elif fault == "switchover":
            other = next(each for each in self._cluster.nodes if each is not master)
            arguments = ("switchover", "--to", other.node_id, "--yes")
            endpoints = ",".join(self._cluster.endpoints)
            done = forked.run(*arguments, "--endpoint", endpoints, timeout_s=SETTLE_S)
            assert done.returncode == 0, done.stderr
            yield
        else:
            assert self._network is not None, "the nodes have no machines of their own"
            others = (CLIENT, COORDINATOR, *(each for each in NODES if each != master.node_id))
            self._network.separate([master.node_id], others)
            yield
            self._network.heal()

    def end(self, clients: Clients) -> Outcome:
        """Stop sending, wait for the last deliveries, and count what the master has."""
        self._cluster.wait_all_in_sync()
        clients.stop_sending()
        last = clients.wait_for_all()
        master = self._cluster.wait_master()
        stored = Counter(
            Attempt(record.body.decode(), record.born_timestamp)
            for queue_id in range(QUEUES)
            for record in master.read_queue(clients.topic, queue_id)
        )
        return Outcome(stored, last)


def main() -> None:
    parser = argparse.ArgumentParser(prog="failover_drill")
    parser.add_argument("--fault", choices=FAULTS, default="kill")
    parser.add_argument("--rest", type=float, default=REST_S, help="seconds between two rounds")
    parser.add_argument(
        "--more", type=int, default=MORE, help="messages after which a client went on"
    )
    parser.add_argument("--keep", type=Path, help="a folder for stores and logs, which stay there")
    parser.add_argument("rounds", type=int)
    parser.add_argument("client", nargs="*", default=["5.5.0", "4.9.7"])
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        drill = stack.enter_context(Drill(folder, separable=options.fault == "partition"))
        for client in options.client:
            with drill.clients(client) as clients:
                found = []
                for each in drill.rounds(
                    clients,
                    options.rounds,
                    fault=options.fault,
                    rest_s=options.rest,
                    more=options.more,
                ):
                    found.append(each)
                    print(client, options.fault, time.strftime("%H:%M:%S"), each, flush=True)
                outcome = drill.end(clients)
            print_outcome(f"{client} {options.fault}", found, outcome)


def print_outcome(what: str, found: list[Round], outcome: Outcome) -> None:
    """Two lines of figures, and one of what became of the messages."""
    for name in ("acknowledgement_gap_ms", "delivery_gap_ms"):
        gaps = [getattr(each, name) for each in found]
        print(what, name, f"median {statistics.median(gaps)}, longest {max(gaps)}")
    print(
        what,
        f"acknowledged {len(outcome.last.acknowledged)}, lost {len(outcome.lost)}, "
        f"doubled {len(outcome.doubled)}, failed {dict(outcome.last.failed)}, "
        f"tried again by the client {len(outcome.tried_again)}, "
        f"delivered again {outcome.last.repeated}",
        flush=True,
    )


if __name__ == "__main__":
    main()
