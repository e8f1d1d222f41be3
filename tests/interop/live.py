"""A broker and a tandemlog node side by side, for the tests of live replication.

    with side_by_side(tmp_path, version) as pair:
        pair.follow()
        load = pair.load(rate=1_000)
        ...
        pair.equal()

What is compared is what users rely on: the bytes of the log, and each message by its offset, key,
id and time.
"""

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tandemlog
from helpers.running import SMALL, NodeProcess, free_ports, wait_until
from interop.load import Consumer, Load, NameServerPort
from interop.rocketmq import Broker, NameServer, StoreSizes, ask
from interop.store_client import StoreClient, Stored, Talker
from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.store_json import loads
from tandemlog_server.rocketmq.wire.requests import GET_BROKER_RUNTIME_INFO
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.verify import verify

TOPIC, QUEUES = "Orders", 4
SIZES = StoreSizes(
    commit_log_file_size=SMALL["commit_log_file_size"],
    queue_file_size=SMALL["queue_file_size"],
    index_slots=SMALL["index_slots"],
    index_entries=SMALL["index_entries"],
)
SAMPLES = 20


@dataclass
class SideBySide:
    """See the module. `node` is set by `follow`."""

    folder: Path
    version: str
    name_server: NameServer
    broker: Broker
    client: StoreClient
    clients: list[Talker] = field(default_factory=list)
    name: NameServerPort | None = None
    """What clients have as their name server, if that is not the name server itself."""
    node: NodeProcess = field(init=False)

    def follow(self, store: Path | None = None, **settings: Any) -> NodeProcess:
        """Start a node, and wait until it follows the broker. Of a broker before 5.4 it leaves the
        tags out of its index, as that does."""
        listen, http = free_ports(2)
        self.node = NodeProcess(
            self.folder / "node",
            {
                "cluster_id": "test",
                "node_id": "n0",
                "follow": f"rocketmq://{self.broker.address}",
                "listen": f"127.0.0.1:{listen}",
                "http_listen": f"127.0.0.1:{http}",
                "store": {
                    "directory": store or self.folder / "node" / "store",
                    "index_tags": not self.version.startswith("4."),
                    **SMALL,
                },
                **settings,
            },
        )
        self.node.start()
        self.following()
        return self.node

    def following(self) -> None:
        """Wait until the node follows."""

        def follows() -> bool:
            status = self.node.status()
            return status is not None and status.state == "following"

        wait_until("the node to follow the broker", follows, 60)

    def load(self, name: str = "load", *, queues: int = QUEUES, **order: Any) -> Load:
        """Producers that send to the broker from now on."""
        made = Load(
            self.name or self.name_server, self.folder / name, TOPIC, queues=queues, prefix=name,
            version=self.version, **order,
        )  # fmt: skip
        self.clients.append(made)
        return made

    def consumer(self, group: str, **order: Any) -> Consumer:
        # clients of 4.9.7 may rest for 30 s after a broker has closed their connection
        made = Consumer(self.name or self.name_server, self.folder / group, TOPIC, group, **order)
        self.clients.append(made)
        return made

    def broker_span(self) -> tuple[int, int]:
        """Where the broker's log begins and ends."""
        answer: Any = loads(ask(self.broker.port, GET_BROKER_RUNTIME_INFO))
        table = answer["table"]
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])

    def caught_up(self, timeout_s: float = 60) -> int:
        """Wait until the node has all that the broker has; where that ends."""
        _, end = self.broker_span()

        def there() -> bool:
            status = self.node.status()
            return status is not None and status.reput_offset >= end <= status.flushed_offset

        wait_until(f"the node to have the log up to {end}", there, timeout_s)
        return end

    def equal(self) -> None:
        """Both logs have the same bytes. Nothing is being sent."""
        end = self.caught_up()
        begin, _ = self.broker_span()
        mine = log_bytes(self.node.store, begin, end, SIZES.commit_log_file_size)
        assert mine == log_bytes(self.broker.store, begin, end, SIZES.commit_log_file_size)

    def served(self, promised: dict[str, Stored]) -> None:
        """The node serves every message of `promised` by offset, and samples by key, id and
        time."""
        found = {
            str(each.keys): Stored(
                TOPIC, queue_id, each.queue_offset, each.msg_id, zlib.crc32(each.body)
            )
            for queue_id in range(QUEUES)
            for each in self.node.read_queue(TOPIC, queue_id)
        }
        missing = promised.items() - found.items()
        assert not missing, f"{len(missing)} of {len(promised)}, for example {sorted(missing)[:2]}"
        with tandemlog.Admin(self.node.endpoint) as admin:
            for key in sorted(promised)[:: max(1, len(promised) // SAMPLES)]:
                check_found(admin, key, promised[key])


def check_found(admin: tandemlog.Admin, key: str, stored: Stored) -> None:
    """By key, by message id, and by the time when it was stored."""
    place = (stored.topic, stored.queue_id, stored.queue_offset)
    by_key = admin.query_by_key(TOPIC, key)
    assert [(each.topic, each.queue_id, each.queue_offset) for each in by_key] == [place]
    by_id = admin.query_by_id(stored.msg_id, TOPIC)
    assert by_id is not None
    assert by_id.keys == [key]
    (first,) = admin.search_offset(TOPIC, by_id.store_timestamp, queue_id=stored.queue_id).values()
    assert first <= stored.queue_offset


def log_bytes(store: Path, start: int, end: int, file_size: int) -> bytes:
    """The commit log's bytes start .. end-1, as the files have them."""
    found = []
    while start < end:
        base = start - start % file_size
        with (store / "commitlog" / offset_file_name(base)).open("rb") as file:
            file.seek(start - base)
            found.append(file.read(min(file_size - (start - base), end - start)))
        start = base + file_size
    return b"".join(found)


def check_alone(store: Path) -> None:
    """A stopped node's store verifies."""
    report = verify(config_of(store))
    assert not report.faults, report.faults


def check_same(store: Path, other: Path) -> None:
    """Two stopped stores have the same log, queues and index."""
    report = compare(config_of(store), config_of(other))
    assert report.end > report.start
    assert not report.faults, report.faults


def config_of(store: Path) -> StoreConfig:
    return StoreConfig(store, **SMALL)


@contextlib.contextmanager
def side_by_side(folder: Path, version: str, **settings: Any) -> Iterator[SideBySide]:
    """A broker of `version` with a topic; everything is ended with the block."""
    name_server = NameServer(folder / "namesrv", version)
    broker = Broker(folder / "broker", version)
    pair: SideBySide | None = None
    client: StoreClient | None = None
    try:
        name_server.start()
        broker.start(name_server, folder / "store", SIZES, **settings)
        broker.wait_until_serving()
        client = StoreClient(name_server, folder / "client", version)
        client.create_topic(TOPIC, QUEUES)
        pair = SideBySide(folder, version, name_server, broker, client)
        yield pair
    finally:
        if pair is not None:
            for each in pair.clients:
                each.kill()
            if hasattr(pair, "node"):
                pair.node.kill()
        if client is not None:
            client.kill()
        broker.kill()
        name_server.kill()
