"""Real node processes for the figures that go over the network."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tandemlog
from benchmarks.harness.workload import QUEUES, topics
from tandemlog import Message
from tandemlog.cluster.topology import Topology
from tandemlog.errors import TandemlogError
from tandemlog_server.cli.local.local_cluster import LocalCluster, Wishes, plan_cluster
from tandemlog_server.cli.local.local_coordinator import PORT_DISTANCE, PORTS


def free_base(distance: int = 100, nodes: int = 3) -> int:
    """A port that is free now, with its neighbours, and theirs `distance` above."""
    for port in range(18_000, 40_000, 400):
        with contextlib.suppress(OSError):
            for each in (
                *range(port, port + nodes),
                *range(port + distance, port + distance + nodes),
                *range(port + PORT_DISTANCE, port + PORT_DISTANCE + PORTS),
            ):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
            return port
    raise RuntimeError("no free ports on loopback")


@contextlib.contextmanager
def cluster(
    folder: Path,
    topic_count: int,
    change: Callable[[str], str] = lambda settings: settings,
    *,
    kind: type[LocalCluster] = LocalCluster,
    **wishes: Any,
) -> Iterator[LocalCluster]:
    """A local cluster with `topic_count` topics, ready and in sync; stopped at the end. `change`
    may change the text of the nodes' settings, `kind` how its processes are started."""
    plan = plan_cluster(folder, Wishes(**{"slaves": 0, "commit_log_file_size": 1 << 30, **wishes}))
    local = kind(folder, plan, free_base(nodes=plan.slaves + 1))
    local.open_doors()
    local.write()
    for node in local.nodes:
        node.config.write_text(change(node.config.read_text()))
    local.start()
    try:
        wait_ready(local)
        with tandemlog.Admin(local.endpoints.split(","), security=local.client) as admin:
            for name in topics(topic_count):
                admin.create_topic(name, queues=QUEUES)
        yield local
    finally:
        local.stop()


def wait_ready(local: LocalCluster, timeout_s: float = 60) -> Topology:
    """Wait until every node answers and has dispatched the whole log of the master."""
    deadline = time.monotonic() + timeout_s
    with tandemlog.Admin(local.endpoints.split(","), security=local.client) as admin:
        while True:
            with contextlib.suppress(TandemlogError):
                topology = admin.cluster()
                master = topology.master
                nodes = [node for node in topology.nodes if node.reachable]
                if (
                    master is not None
                    and len(nodes) == len(local.nodes)
                    and all(node.reput_offset == master.wrote_offset for node in nodes)
                ):
                    return topology
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster in {local.directory} is not in sync")
            time.sleep(0.02)


def first_put(local: LocalCluster) -> float:
    """Kill the first node: seconds from its new start to the answer to a put."""
    node = local.nodes[0]
    if node.process is not None:
        node.process.kill()
        node.process.wait()
    began = time.perf_counter()
    local.start_node(node)
    with tandemlog.Producer(node.endpoint) as producer:
        producer.send(Message(topics(1)[0], b"the first one")).result(60)
    return time.perf_counter() - began


def cpu_seconds_of(process: int) -> float:
    """Processor time of a process and of its children that have ended, user and system mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: int) -> float:
    """A process's own memory (without mapped files), in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024
