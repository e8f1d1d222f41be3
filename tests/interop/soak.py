"""Minutes of load on a master and its slave, one of each kind, with a fault every few seconds.

    python -m interop.soak MINUTES [VERSION ...]      (make soak MINUTES=10)

For each version first a node follows a broker, then a broker follows a node. Either side is killed
or paused, connections are cut, each is restarted in order. In the end both logs are equal byte for
byte, and each message that the master acknowledged is served by the slave: by the node at once, by
the broker once it is started as a master, with the offsets of a group. What is not is printed, and
the exit code is 1.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tandemlog
from helpers.running import wait_until
from interop.live import SideBySide, check_alone, check_same, side_by_side
from interop.store_client import StoreClient
from interop.test_rocketmq_slave import (
    GROUP,
    TABLES_S,
    Cluster,
    cluster,
    create_topic,
    log_of,
    offsets_in,
)
from tandemlog import Message, ProducerOptions

REST_S = 6.0


def kill_node(pair: SideBySide) -> None:
    pair.node.kill()
    time.sleep(random.random())
    pair.node.start()


def stop_node(pair: SideBySide) -> None:
    pair.node.stop()
    pair.node.start()


def pause_node(pair: SideBySide) -> None:
    pair.node.pause()
    time.sleep(3)
    pair.node.resume()


def kill_broker(pair: SideBySide) -> None:
    pair.broker.kill()
    pair.broker.restart()
    pair.broker.wait_until_serving()


def stop_broker(pair: SideBySide) -> None:
    pair.broker.restart()
    pair.broker.wait_until_serving()


def pause_broker(pair: SideBySide) -> None:
    pair.broker.pause()
    time.sleep(4)
    pair.broker.resume()


def cut_connections(pair: SideBySide) -> None:
    """As a firewall that resets them."""
    for port in (pair.broker.port, pair.broker.ha_port):
        subprocess.run(["ss", "-K", "dst", "127.0.0.1", "dport", "=", str(port)],
                       capture_output=True, check=False)  # fmt: skip


FAULTS: tuple[Callable[[SideBySide], None], ...] = (
    kill_node, kill_node, stop_node, pause_node, kill_broker, stop_broker, pause_broker,
    cut_connections, cut_connections,
)  # fmt: skip


def play(folder: Path, version: str, minutes: float) -> str:
    """Returns one line of what was done; raises AssertionError for what must not be."""
    done: Counter[str] = Counter()
    with side_by_side(folder, version) as pair:
        pair.follow()
        load = pair.load(rate=1_200, body_bytes=500)
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            time.sleep(REST_S)
            fault = random.choice(FAULTS)
            fault(pair)
            done[fault.__name__] += 1
        summary = load.stop()
        pair.equal()
        promised = load.acknowledged()
        pair.served(promised)
        _, end = pair.broker_span()
        assert pair.node.stop() == 0
        pair.broker.stop()
        check_alone(pair.node.store)
        check_same(pair.node.store, pair.broker.store)
    faults = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    return (
        f"{version}: {len(promised)} messages acknowledged and all served, {summary.failed} not "
        f"acknowledged, {end} bytes of log equal; {faults}"
    )


def kill_slave(made: Cluster) -> None:
    made.slave.kill()
    made.start_slave()


def stop_slave(made: Cluster) -> None:
    made.slave.stop()
    made.start_slave()


def pause_slave(made: Cluster) -> None:
    made.slave.pause()
    time.sleep(3)
    made.slave.resume()


def kill_master(made: Cluster) -> None:
    made.node.kill()
    made.node.start()


def pause_master(made: Cluster) -> None:
    made.node.pause()
    time.sleep(3)
    made.node.resume()


SERVED_FAULTS: tuple[Callable[[Cluster], None], ...] = (
    kill_slave, stop_slave, pause_slave, kill_master, pause_master,
)  # fmt: skip


def play_served(folder: Path, version: str, minutes: float) -> str:
    """As `play`, for a slave broker behind a node."""
    done: Counter[str] = Counter()
    with cluster(folder) as made:
        made.slave.version = version
        create_topic(made.node)
        made.start_slave()
        load = Puts(made)
        load.start()
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            time.sleep(REST_S)
            fault = random.choice(SERVED_FAULTS)
            fault(made)
            done[fault.__name__] += 1
        load.stop()
        with tandemlog.Admin(made.node.endpoint) as admin:
            admin.commit(GROUP, {("Orders", 0): 17, ("Orders", 2): 4})
        made.wait_caught_up()
        wait_until(
            "the slave to copy the offsets",
            lambda: offsets_in(made.slave_store) == {0: 17, 2: 4},
            TABLES_S,
        )
        status = made.node.status()
        assert status is not None
        assert made.node.stop() == 0
        made.slave.stop()
        end = status.wrote_offset
        assert log_of(made.slave_store, end) == log_of(made.node.store, end)
        made.start_slave_as_master()
        client = StoreClient(made.name_server, folder / "client", version)
        try:
            client.wait_for("Orders", 0)
            found = client.records("Orders", 3)
        finally:
            client.close()
        missing = load.acknowledged - found.keys()
        assert not missing, f"{len(missing)} of {len(load.acknowledged)}: {sorted(missing)[:3]}"
    faults = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    return (
        f"{version} as a slave: {len(load.acknowledged)} messages acknowledged and all served by "
        f"it as the master, {end} bytes of log equal, offsets kept; {faults}"
    )


class Puts(threading.Thread):
    """A producer that sends about a thousand messages a second until `stop`; retries are its
    client's."""

    def __init__(self, made: Cluster) -> None:
        super().__init__()
        self.acknowledged: set[str] = set()
        self._made = made
        self._stopping = threading.Event()

    def run(self) -> None:
        options = ProducerOptions(delivery_timeout_ms=60_000)
        number = 0
        with tandemlog.Producer(self._made.node.endpoint, options) as producer:
            while not self._stopping.wait(0.05):
                sent = []
                for _ in range(50):
                    number += 1
                    key = f"put-{number}"
                    message = Message("Orders", key.encode() * 60, keys=key, queue_id=number % 3)
                    sent.append((key, producer.send(message)))
                for key, future in sent:
                    future.result(90)
                    self.acknowledged.add(key)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def main() -> int:
    minutes, versions = float(sys.argv[1]), sys.argv[2:] or ["5.5.0", "4.9.7"]
    for version in versions:
        for one in (play, play_served):
            folder = Path(tempfile.mkdtemp(prefix="soak-"))
            try:
                print(one(folder, version, minutes), flush=True)
            except AssertionError as error:
                print(f"{version}: {error}; the folder is kept: {folder}", flush=True)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
