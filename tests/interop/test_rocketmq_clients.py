"""RocketMQ's own clients see of a node what they see of RocketMQ's own broker.

Each scenario of java/Scenarios.java is played by clients 5.5.0 and 4.9.7 against a broker 5.5.0
with its name server, and against a node; the two are compared field by field: statuses, offsets,
properties, order, how often each message was delivered, and the codes of refusals.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.running import Running, free_ports
from interop.rocketmq import BROKER_NAME, CLUSTER, Broker, NameServer, StoreSizes
from interop.scenarios import Allowed, Seen, differences, is_allowed, play, scenarios

pytestmark = pytest.mark.interop

VERSIONS = ("5.5.0", "4.9.7")
SIZES = StoreSizes(
    commit_log_file_size=16 << 20, queue_file_size=20_000, index_slots=5_000, index_entries=20_000
)
ALLOWED: list[Allowed] = []

Played = dict[str, tuple[dict[str, Seen], dict[str, Seen]]]


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
def a_node(folder: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    store = {
        "commit_log_file_size": SIZES.commit_log_file_size,
        "queue_file_size": SIZES.queue_file_size,
        "index_slots": SIZES.index_slots,
        "index_entries": SIZES.index_entries,
    }
    clients = {"listen": f"127.0.0.1:{port}", "cluster": CLUSTER, "broker_name": BROKER_NAME}
    with Running(folder, store=store, extra={"rocketmq_clients": clients}):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("scenarios")
    with a_broker(folder / "broker") as broker, a_node(folder / "node") as node:
        found: Played = {}
        for version in VERSIONS:
            with ThreadPoolExecutor() as threads:
                both = threads.map(
                    lambda where, version=version: play(
                        version, where[1], BROKER_NAME, folder / f"{where[0]}-{version}"
                    ),
                    [("broker", broker), ("node", node)],
                )
                theirs, ours = both
            found[version] = theirs, ours
    return found


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version in VERSIONS for scenario in scenarios(version)],
)
def test_a_node_is_seen_as_a_broker_is(played: Played, version: str, scenario: str) -> None:
    theirs, ours = (each[scenario] for each in played[version])
    assert theirs.problem is None, f"at the broker: {theirs.problem}"
    assert ours.problem is None, f"at the node: {ours.problem}\nafter {ours.seen}"
    found = [
        each
        for each in differences(theirs.seen, ours.seen)
        if not is_allowed(scenario, each, ALLOWED)
    ]
    assert not found, "\n".join(map(str, found))
