"""A broker and a node that RocketMQ's clients may use in the same way: same names, same sizes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from helpers.elected import Elected
from helpers.running import Running, free_ports
from interop.rocketmq import BROKER_NAME, CLUSTER, Broker, NameServer, StoreSizes

SIZES = StoreSizes(
    commit_log_file_size=16 << 20, queue_file_size=20_000, index_slots=5_000, index_entries=20_000
)
STORE = {
    "commit_log_file_size": SIZES.commit_log_file_size,
    "queue_file_size": SIZES.queue_file_size,
    "index_slots": SIZES.index_slots,
    "index_entries": SIZES.index_entries,
}
ALL_ON: dict[str, Any] = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": 2_000,
}
"""Settings of a broker."""


class NodeForClients(NamedTuple):
    """Where a node is."""

    address: str
    """For RocketMQ's clients: name server and broker."""
    endpoint: str
    """For ours."""


@contextlib.contextmanager
def a_broker(folder: Path, **settings: object) -> Iterator[str]:
    """The address of the name server of a broker that has everything switched on."""
    name_server, broker = NameServer(folder / "namesrv"), Broker(folder / "broker")
    try:
        name_server.start()
        broker.start(name_server, folder / "store", SIZES, **{**ALL_ON, **settings})
        broker.wait_until_serving()
        yield f"127.0.0.1:{name_server.port}"
    finally:
        broker.kill()
        name_server.kill()


def a_broker_for_its_tests(folder: Path) -> contextlib.AbstractContextManager[str]:
    """The same, with the settings of the brokers that RocketMQ's own tests start."""
    return a_broker(
        folder,
        enableCalcFilterBitMap="true",
        enableConsumeQueueExt="true",
        appendAckAsync="true",
        appendCkAsync="true",
        loadBalancePollNameServerInterval=500,
        transactionCheckInterval=30_000,
    )


@contextlib.contextmanager
def a_node(folder: Path) -> Iterator[NodeForClients]:
    """A node that listens to RocketMQ's clients too, under the names of `a_broker`."""
    (port,) = free_ports(1)
    extra = {"rocketmq_clients": _listening(port)}
    with Running(folder, store=STORE, extra=extra) as running:
        yield NodeForClients(f"127.0.0.1:{port}", running.master.endpoint)


@contextlib.contextmanager
def three_nodes(folder: Path) -> Iterator[str]:
    """Three nodes that elect their master: all as name servers, HOST:PORT;HOST:PORT;HOST:PORT."""
    cluster = Elected(folder)
    ports = free_ports(len(cluster.nodes))
    for node, port in zip(cluster.nodes, ports, strict=True):
        node.settings["store"].update(STORE)
        node.settings["rocketmq_clients"] = _listening(port)
    with cluster:
        cluster.the_master()
        cluster.wait_in_sync(count=3)
        yield ";".join(f"127.0.0.1:{port}" for port in ports)


def _listening(port: int) -> dict[str, str]:
    return {
        "listen": f"127.0.0.1:{port}",
        "cluster_name": CLUSTER,
        "broker_name": BROKER_NAME,
    }
