"""A broker and a node that RocketMQ's clients may use in the same way: same names, same sizes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from helpers.running import Running, free_ports
from interop.rocketmq import BROKER_NAME, CLUSTER, Broker, NameServer, StoreSizes

SIZES = StoreSizes(
    commit_log_file_size=16 << 20, queue_file_size=20_000, index_slots=5_000, index_entries=20_000
)


class NodeForClients(NamedTuple):
    """Where a node is."""

    address: str
    """For RocketMQ's clients: name server and broker."""
    endpoint: str
    """For ours."""


@contextlib.contextmanager
def a_broker(folder: Path) -> Iterator[str]:
    """The address of the name server of a broker that has everything switched on."""
    name_server, broker = NameServer(folder / "namesrv"), Broker(folder / "broker")
    try:
        name_server.start()
        broker.start(
            name_server,
            folder / "store",
            SIZES,
            autoCreateTopicEnable="true",
            enablePropertyFilter="true",
            timerWheelEnable="true",
            recallMessageEnable="true",
            transactionCheckInterval=2_000,
        )
        broker.wait_until_serving()
        yield f"127.0.0.1:{name_server.port}"
    finally:
        broker.kill()
        name_server.kill()


@contextlib.contextmanager
def a_node(folder: Path) -> Iterator[NodeForClients]:
    """A node that listens to RocketMQ's clients too, under the names of `a_broker`."""
    (port,) = free_ports(1)
    store = {
        "commit_log_file_size": SIZES.commit_log_file_size,
        "queue_file_size": SIZES.queue_file_size,
        "index_slots": SIZES.index_slots,
        "index_entries": SIZES.index_entries,
    }
    clients = {
        "listen": f"127.0.0.1:{port}",
        "cluster_name": CLUSTER,
        "broker_name": BROKER_NAME,
    }
    extra = {"rocketmq_clients": clients}
    with Running(folder, store=store, extra=extra) as running:
        yield NodeForClients(f"127.0.0.1:{port}", running.master.endpoint)
