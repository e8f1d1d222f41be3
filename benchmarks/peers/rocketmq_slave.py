"""A node that follows a RocketMQ broker beside RocketMQ's own slave, from an empty disk.

One broker has a log of about 740 MB. In turns our node and a slave broker of the same version copy
it from the first byte on. The time runs from the first byte there to the last one: our log is
durable then, theirs is written. The broker's processor time of each run is the cost of a follower.
Needs Java and Maven; the tests' own tooling starts the brokers.
"""

import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cpu_seconds_of
from helpers.running import ROOT, NodeProcess, free_ports
from interop.load import Load
from interop.rocketmq import Broker, NameServer, StoreSizes, ask
from interop.store_client import StoreClient
from tandemlog.format.files.store_json import loads
from tandemlog_server.rocketmq.wire.requests import GET_BROKER_RUNTIME_INFO

MESSAGES, BODY_BYTES = 600_000, 1024
ROUNDS = 5
POLL_S = 0.05
TIMEOUT_S = 120.0
SIZES = StoreSizes(1 << 30, 6_000_000, 5_000_000, 20_000_000)


def run(folder: Path) -> list[Figure]:
    name_server = NameServer(folder / "namesrv")
    broker = Broker(folder / "broker")
    client: StoreClient | None = None
    try:
        name_server.start()
        broker.start(name_server, folder / "store", SIZES)
        broker.wait_until_serving()
        client = StoreClient(name_server, folder / "client")
        client.create_topic("Orders", 8)
        with Load(
            name_server, folder / "load", "Orders", queues=8, batch=200, messages=MESSAGES,
            body_bytes=BODY_BYTES,
        ) as load:  # fmt: skip
            load.wait_for_end(600)
        return _figures(folder, name_server, broker, end_of(broker.port))
    finally:
        if client is not None:
            client.kill()
        broker.kill()
        name_server.kill()


def _figures(folder: Path, name_server: NameServer, broker: Broker, end: int) -> list[Figure]:
    rounds = []
    for number in range(ROUNDS):
        ours = _ours(folder / f"node{number}", broker, end)
        theirs = _theirs(folder / f"slave{number}", name_server, broker, end)
        rounds.append((*ours, *theirs))
        print(
            f"ours {ours[0]:.0f} MB/s, the broker's {ours[1]:.2f} s; "
            f"theirs {theirs[0]:.0f} MB/s, {theirs[1]:.2f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    speed, cost, their_speed, their_cost = map(statistics.median, zip(*rounds, strict=True))
    return [
        Figure("follow a broker from an empty disk", speed, "MB/s", 1.0, their_speed),
        Figure("the broker's processor time for it", cost, "s", 1.0, their_cost, at_most=True),
    ]


def _ours(folder: Path, broker: Broker, end: int) -> tuple[float, float]:
    listen, http = free_ports(2)
    settings: dict[str, Any] = {
        "cluster_id": "bench",
        "node_id": "n0",
        "follow": f"rocketmq://{broker.address}",
        "listen": f"127.0.0.1:{listen}",
        "http_listen": f"127.0.0.1:{http}",
        "store": {"directory": folder / "store"},
    }
    node = NodeProcess(folder, settings, program=ROOT)
    before = processor_s(broker)
    try:
        node.start(wait=False)
        speed = _speed(lambda: _durable(http), end)
        return speed, processor_s(broker) - before
    finally:
        node.kill()
        rmtree(folder)


def _theirs(folder: Path, name_server: NameServer, broker: Broker, end: int) -> tuple[float, float]:
    slave = Broker(folder)
    before = processor_s(broker)
    try:
        slave.start(name_server, folder / "store", SIZES, brokerId=1, brokerRole="SLAVE")
        speed = _speed(lambda: end_of(slave.port), end)
        return speed, processor_s(broker) - before
    finally:
        slave.kill()
        rmtree(folder)


def _speed(position: Callable[[], int], end: int) -> float:
    """MB/s from the first position above 0 on, as seen from outside."""
    began: tuple[float, int] | None = None
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        here = 0
        with suppress(OSError, RuntimeError, ValueError):
            here = position()
        now = time.monotonic()
        if here and began is None:
            began = now, here
        if here >= end and began is not None:
            return (end - began[1]) / max(now - began[0], POLL_S) / 1e6
    raise TimeoutError(f"not at {end} within {TIMEOUT_S} s")


def _durable(http: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("tandemlog_durable_offset"):
                return int(float(line.rpartition(" ")[2]))
    return 0


def end_of(port: int) -> int:
    answer: Any = loads(ask(port, GET_BROKER_RUNTIME_INFO))
    return int(answer["table"]["commitLogMaxOffset"])


def processor_s(broker: Broker) -> float:
    assert broker.process is not None
    return cpu_seconds_of(broker.process.pid)
