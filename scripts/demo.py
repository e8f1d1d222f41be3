"""The main job on real input: a store that RocketMQ wrote, replicated, proved, loaded, killed.

    1  a master on a copy of the store, two slaves with empty disks
    2  the slaves take the log and rebuild queues and index: equal to RocketMQ's own?
    3  producers and consumers (on a slave); a slave is killed, then the master, and another node
       takes over
    4  every node read back, every acknowledged message accounted for, logs compared

usage: demo.py [--messages N] [--keep DIR]      ends non-zero if anything is off
"""

import argparse
import json
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import tandemlog
from tandemlog import Message, ProducerOptions, ReadFrom
from tandemlog.consume.received.received_batch import messages_of
from tandemlog.errors import NoNodeError, TandemlogError
from tandemlog.v1 import broker_pb2, broker_pb2_grpc
from tandemlog_server.cli.local.local_cluster import LocalCluster, NodeProcess, Wishes, plan_cluster
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.verify import verify

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "golden" / "rocketmq-5.5.0-clean"
KEPT = ROOT / "tests" / "data" / "rocketmq-5.5.0-clean.tar.xz"
TOPIC = "tandemlog-demo"
QUEUES = 8
PRODUCERS = 4
LARGE = [("grpc.max_receive_message_length", 64 << 20)]

# On a disk that others have nearly filled a node would delete its oldest files, which are small
# here, or refuse puts; the demo counts every message, and removes them all in the end.
KEEP_EVERYTHING = {
    "TANDEMLOG_STORE__RETENTION__CLEAN_FORCIBLY": "false",
    "TANDEMLOG_STORE__RETENTION__DISK_WARNING_PERCENT": "100",
}

console = Console(highlight=False)


class DemoError(Exception):
    """Something is off; the message says what."""


# ---- the store of RocketMQ


def take_store(work: Path) -> tuple[Path, Path, dict[str, int]]:
    """A copy to serve, a copy to compare with, and the sizes that the files cannot tell."""
    original = work / "rocketmq"
    if SHARED.is_dir():
        shutil.copytree(SHARED, original)
        for path in [original, *original.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        with tarfile.open(KEPT) as archive:
            archive.extractall(original, filter="data")
    served = work / "store"
    shutil.copytree(original / "store", served)
    sizes: dict[str, int] = json.loads((original / "store.json").read_text())
    return served, original, sizes


def queue_files(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def index_entries(store: Path, sizes: dict[str, int]) -> Counter[tuple[object, object]]:
    config = StoreConfig(
        store, index_slots=sizes["index_slots"], index_entries=sizes["index_entries"]
    )
    return Counter((row["key_hash"], row["physical_offset"]) for row in dump(config, "index"))


# ---- waiting


@contextmanager
def bars() -> Iterator[Progress]:
    columns = (
        TextColumn("  {task.description:28}"),
        BarColumn(30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield progress


def wait_until(what: str, true: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {timeout_s:.0f} s for: {what}")
        time.sleep(0.1)


def wait_caught_up(cluster: LocalCluster, admin: tandemlog.Admin, description: str) -> None:
    """Show how far each node has dispatched, until all have what the master has."""
    with bars() as progress:
        tasks = {
            node.node_id: progress.add_task(f"{node.node_id} {description}", total=None)
            for node in cluster.nodes
        }
        deadline = time.monotonic() + 60
        while True:
            try:
                topology = admin.cluster()
            except NoNodeError as error:  # on a slow machine they are still starting
                if time.monotonic() > deadline:
                    raise DemoError(f"the nodes did not start within 60 s: {error}") from None
                time.sleep(0.1)
                continue
            nodes = {each.node_id: each for each in topology.nodes if each.reachable}
            master = topology.master
            if master is not None:
                for name, node in nodes.items():
                    progress.update(
                        tasks[name], total=master.wrote_offset, completed=node.reput_offset
                    )
                if len(nodes) == len(cluster.nodes) and all(
                    each.reput_offset == each.confirm_offset == master.wrote_offset
                    for each in nodes.values()
                ):
                    return
            if time.monotonic() > deadline:
                raise DemoError("the nodes did not catch up within 60 s")
            time.sleep(0.1)


# ---- proof of what was rebuilt


def has_files(store: Path, files: dict[str, bytes]) -> bool:
    return queue_files(store) == files


def has_entries(
    store: Path, sizes: dict[str, int], entries: Counter[tuple[object, object]]
) -> bool:
    return index_entries(store, sizes) == entries


def prove_rebuilt(cluster: LocalCluster, original: Path, sizes: dict[str, int]) -> None:
    """Every slave's queue files equal RocketMQ's byte for byte, and its index entries."""
    files = queue_files(original / "store")
    entries = index_entries(original / "store", sizes)
    for node in cluster.nodes[1:]:
        store = node.config.parent / "store"
        # the tails of the queues reach the disk within a flush interval
        wait_until(
            f"{node.node_id}'s queue files to equal RocketMQ's",
            partial(has_files, store, files),
            15,
        )
        wait_until(
            f"{node.node_id}'s index to equal RocketMQ's",
            partial(has_entries, store, sizes, entries),
            15,
        )
        console.print(
            f"  {node.node_id}: {len(files)} queue files equal RocketMQ's byte for byte, "
            f"{entries.total():,} index entries equal"
        )


# ---- load


class Load:
    """Producers that send numbered messages, and a consumer on a slave that reads them.

    The producers send `messages` and then a trickle until the faults are over: however fast the
    machine is, the kills fall into the middle of the load.
    """

    def __init__(self, cluster: LocalCluster, messages: int) -> None:
        self.acknowledged: list[bytes] = []
        self.times: list[float] = []
        self.failed: list[str] = []
        self.seen: Counter[bytes] = Counter()
        self._endpoints = [node.endpoint for node in cluster.nodes]
        self._each = messages // PRODUCERS
        self._sent = [0] * PRODUCERS
        self._faults_over = threading.Event()
        self._done = threading.Event()
        self._consumer = threading.Thread(target=self._consume, daemon=True)

    @property
    def total(self) -> int:
        return sum(self._sent)

    def run(self, faults: Iterator[None]) -> None:
        """Send while `faults` does its worst, a step at a time; returns when all is read."""
        self._consumer.start()
        with bars() as progress, ThreadPoolExecutor(PRODUCERS) as pool:
            sent = progress.add_task("acknowledged", total=self._each * PRODUCERS)
            read = progress.add_task("read from a slave", total=self._each * PRODUCERS)
            deadline = time.monotonic() + 90

            def wait_a_step() -> None:
                total = max(self.total, self._each * PRODUCERS)
                progress.update(sent, completed=len(self.acknowledged), total=total)
                progress.update(read, completed=len(self.seen), total=total)
                if time.monotonic() > deadline:
                    raise DemoError(
                        f"{len(self.acknowledged):,} acknowledged, {len(self.seen):,} read, "
                        "and no end within 90 s"
                    )
                time.sleep(0.1)

            try:
                working = [pool.submit(self._produce, number) for number in range(PRODUCERS)]
                for _ in faults:
                    wait_a_step()
            finally:
                self._faults_over.set()
            while not all(each.done() for each in working) or len(self.seen) < len(
                self.acknowledged
            ):
                wait_a_step()
            wait_a_step()
            for each in working:
                each.result()
        self._done.set()

    def _produce(self, number: int) -> None:
        options = ProducerOptions(linger_ms=2, batch_bytes=64 << 10)
        with tandemlog.Producer(self._endpoints, options) as producer:
            while (start := self._sent[number]) < self._each or not self._faults_over.is_set():
                end = min(start + 500, self._each) if start < self._each else start + 50
                futures = []
                for serial in range(start, end):
                    body = f"{number}-{serial}".encode()
                    message = Message(
                        TOPIC, body, keys=f"demo-{number}-{serial}", tags=f"producer-{number}"
                    )
                    futures.append((body, producer.send(message)))
                self._sent[number] = end
                for body, future in futures:
                    try:
                        future.result(90)
                        self.acknowledged.append(body)
                        self.times.append(time.monotonic())
                    except TandemlogError as problem:
                        self.failed.append(str(problem))
                time.sleep(0.02)

    def _consume(self) -> None:
        with (
            tandemlog.Consumer(self._endpoints, read_from=ReadFrom.SLAVE) as consumer,
            consumer.follow(TOPIC) as stream,
        ):
            while not self._done.is_set():
                with suppress(TimeoutError):
                    for message in stream.next_batch(timeout_ms=200) or ():
                        self.seen[message.body] += 1


def disturb(cluster: LocalCluster, admin: tandemlog.Admin, load: Load) -> Iterator[None]:
    """SIGKILL to a slave and then to the master, each started again a moment later.

    A generator that gets a step every 0.1 s: nodes end with the thread that started them, so it
    is the main thread that does.
    """
    for role in ("slave", "master"):
        for _ in range(15):
            yield
        while not all(each.in_sync for each in admin.cluster().nodes):
            yield
        master = admin.cluster().master_id
        node = next(
            each for each in cluster.nodes if (each.node_id == master) == (role == "master")
        )
        console.print(f"  kill -9 {node.node_id} ({role})")
        killed = time.monotonic()
        if node.process is not None:
            node.process.kill()
            node.process.wait()
        if role == "master":
            yield from wait_for_successor(admin, load, master, killed)
        for _ in range(5):
            yield
        cluster.start_node(node)


def wait_for_successor(
    admin: tandemlog.Admin, load: Load, master: str, killed: float
) -> Iterator[None]:
    """Until another node leads and acknowledges; prints how long clients had to wait."""
    while (found := admin.cluster()).master is None or found.master_id == master:
        yield
    while not (after := [at for at in load.times if at > killed + 0.05]):
        yield
    before = max(at for at in load.times if at <= killed + 0.05)
    leader = found.master
    epoch = leader.epoch if leader is not None else 0
    console.print(
        f"  {found.master_id} leads epoch {epoch}: the next put was acknowledged "
        f"{after[0] - before:.2f} s after the last one before"
    )


# ---- reading back


def bodies_of(node: NodeProcess) -> Counter[bytes]:
    """Every message of the demo's topic as this one node serves it."""
    found: Counter[bytes] = Counter()
    with grpc.insecure_channel(node.endpoint, options=LARGE) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                position = broker_pb2.QueuePosition(
                    topic=TOPIC, queue_id=queue_id, queue_offset=offset
                )
                request = broker_pb2.PullRequest(positions=[position], max_bytes=8 << 20)
                part = stub.Pull(request, timeout=30).queues[0]
                if part.status != broker_pb2.FOUND:
                    break
                found.update(each.body for each in messages_of(part.records, part.sizes))
                offset = part.next_offset
    return found


def compare_logs(cluster: LocalCluster, sizes: dict[str, int], master_store: Path) -> None:
    """The stopped stores: each one whole, and the slaves' logs byte for byte the master's."""
    stores = [master_store, *(node.config.parent / "store" for node in cluster.nodes[1:])]
    for node, store in zip(cluster.nodes, stores, strict=True):
        report = verify(
            StoreConfig(
                store, index_slots=sizes["index_slots"], index_entries=sizes["index_entries"]
            )
        )
        if report.faults:
            raise DemoError(f"{node.node_id}: {report.faults[0]}")
    end = report.log_end
    size = sizes["commit_log_file_size"]
    for name in sorted(path.name for path in (stores[0] / "commitlog").iterdir()):
        length = min(size, end - int(name))
        if length <= 0:
            continue
        pieces = [
            np.fromfile(store / "commitlog" / name, np.uint8, count=length) for store in stores
        ]
        if not all(np.array_equal(pieces[0], piece) for piece in pieces[1:]):
            raise DemoError(f"commitlog/{name} differs between the nodes")
    console.print(
        f"  {report.records:,} records, {report.units:,} queue units and "
        f"{report.index_entries:,} index entries verified on each node; "
        f"logs equal byte for byte up to {end:,}"
    )


def result_table(
    cluster: LocalCluster, admin: tandemlog.Admin, load: Load, seconds: float
) -> tuple[Table, bool]:
    """What came of it all; the second answer says whether everything is as it must be."""
    acknowledged = set(load.acknowledged)
    table = Table(title="What came of it", title_justify="left")
    for column in ("node", "role", "acknowledged", "read back", "lost", "duplicated", "lag"):
        table.add_column(column, justify="left" if column in ("node", "role") else "right")
    good = not load.failed and len(acknowledged) == load.total
    # what a node knows of its lag is as old as the last heartbeat
    with suppress(DemoError):
        wait_until("no lag", lambda: not any(each.lag_bytes for each in admin.cluster().nodes), 5)
    state: dict[str, Any] = {each.node_id: each for each in admin.cluster().nodes}
    for node in cluster.nodes:
        found = bodies_of(node)
        lost = len(acknowledged - found.keys())
        twice = sum(count - 1 for count in found.values())
        lag = state[node.node_id].lag_bytes
        good = good and not lost and not twice and not lag
        table.add_row(
            node.node_id,
            state[node.node_id].role,
            f"{len(acknowledged):,}",
            f"{found.total():,}",
            str(lost),
            str(twice),
            f"{lag} bytes",
        )
    table.caption = (
        f"{load.total:,} sent, {len(load.failed)} refused or unknown; consumers on slaves saw "
        f"{len(load.seen):,}; {seconds:.1f} s in all"
    )
    return table, good and len(load.seen) >= len(acknowledged)


def run(work: Path, messages: int) -> bool:
    began = time.monotonic()
    served, original, sizes = take_store(work)
    origin = SHARED if SHARED.is_dir() else KEPT
    console.print(f"[bold]1[/] a store that RocketMQ wrote ({origin.name}) becomes a master's")
    plan = plan_cluster(
        work / "cluster",
        Wishes(
            slaves=2,
            store=served,
            flush="sync",
            replication="sync",
            min_in_sync=2,
            index_slots=sizes["index_slots"],
            index_entries=sizes["index_entries"],
        ),
    )
    cluster = LocalCluster(work / "cluster", plan, free_port())
    cluster.write()
    cluster.start()
    try:
        with tandemlog.Admin([node.endpoint for node in cluster.nodes]) as admin:
            console.print("[bold]2[/] two slaves with empty disks take the log and rebuild")
            wait_caught_up(cluster, admin, "dispatched")
            prove_rebuilt(cluster, original, sizes)
            console.print(
                f"[bold]3[/] {PRODUCERS} producers, consumers; a slave and the master killed"
            )
            admin.create_topic(TOPIC, queues=QUEUES)
            load = Load(cluster, messages)
            load.run(disturb(cluster, admin, load))
            wait_caught_up(cluster, admin, "caught up")
            console.print("[bold]4[/] every node read back")
            table, good = result_table(cluster, admin, load, time.monotonic() - began)
    finally:
        faults = cluster.stop()
    if faults:
        raise DemoError("; ".join(faults))
    compare_logs(cluster, sizes, served)
    console.print(table)
    for reason in sorted(set(load.failed))[:3]:
        console.print(f"  {reason}", markup=False)
    return good


def free_port() -> int:
    """A port with its neighbours free: the slaves and the HTTP ports follow it."""
    for port in range(17_100, 40_000, 500):
        with suppress(OSError):
            for each in (
                *range(port, port + 3),
                *range(port + 50, port + 51),
                *range(port + 100, port + 103),
            ):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
            return port
    raise DemoError("no free ports on loopback")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=40_000, help="messages to produce at least")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it")
    arguments = parser.parse_args()
    os.environ.update(KEEP_EVERYTHING)
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True)
            good = run(arguments.keep, arguments.messages)
        else:
            with tempfile.TemporaryDirectory(prefix="tandemlog-demo-") as folder:
                good = run(Path(folder), arguments.messages)
    except (DemoError, TandemlogError) as problem:
        console.print(f"[red]off:[/] {problem}")
        return 1
    console.print("[green]nothing lost, nothing twice[/]" if good else "[red]something is off[/]")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
