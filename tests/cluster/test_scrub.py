"""A flipped bit in the log of a running node: found, fetched from the others, and named."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, wait_until
from tandemlog import Message
from tandemlog.cluster.scrub_status import ScrubStatus

pytestmark = pytest.mark.cluster

MESSAGES = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three nodes with a log of several files each."""
    folder = tmp_path_factory.mktemp("scrub")
    with Running(folder, slaves=2, flush="sync") as running:
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("load", queues=1)
        with tandemlog.Producer(running.endpoints) as producer:
            bodies = [b"%05d" % number + b"." * 1_000 for number in range(MESSAGES)]
            producer.send_many("load", bodies)
        running.wait_in_sync()
        yield running


def files_of(node: NodeProcess) -> list[Path]:
    return sorted((node.store / "commitlog").glob("0*"))


def scrubbed(running: Running, node: NodeProcess) -> ScrubStatus:
    """The state of a node after a whole round that began now: one that was under way before may
    have passed the place."""
    with tandemlog.Admin(running.endpoints) as admin:
        asked_ms = int(time.time() * 1000)
        admin.begin_scrub(node.node_id)

        def done() -> bool:
            status = admin.scrub_status(node.node_id)
            return status.round_began_ms >= asked_ms and status.round_ended_ms > 0

        wait_until(lambda: f"a round of {node.node_id}: {admin.scrub_status(node.node_id)}", done)
        return admin.scrub_status(node.node_id)


@pytest.mark.parametrize("which", ["master", "slave"])
def test_a_flip_is_mended_on_a_running_node(cluster: Running, which: str) -> None:
    node = cluster.master if which == "master" else cluster.slaves[0]
    before = scrubbed(cluster, node)
    assert before.compared_blocks > 0
    assert not before.open_blocks
    for path, at in ((files_of(node)[0], 400_000), (files_of(node)[-1], 500)):
        right = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([right[at] ^ 0x10]))
        assert path.read_bytes() != right
        after = scrubbed(cluster, node)
        assert path.read_bytes() == right
    assert after.mended_blocks == before.mended_blocks + 2
    assert not after.open_blocks
    assert len(list((node.store / "tandemlog").glob("damaged-*"))) == 2
    bodies = [record.body for record in node.read_queue("load", 0)]
    assert [int(body[:5]) for body in bodies] == list(range(MESSAGES + (which == "slave")))
    # the file that was in use goes on
    with tandemlog.Producer(cluster.endpoints) as producer:
        producer.send(Message("load", b"%05d" % MESSAGES, queue_id=0)).result(30)
    cluster.wait_in_sync()
    others = [other for other in (cluster.master, *cluster.slaves) if other is not node]
    for path in files_of(node)[:-1]:
        assert path.read_bytes() == (others[0].store / "commitlog" / path.name).read_bytes()
    note = json.loads((node.store / "tandemlog" / "scrub.json").read_text().splitlines()[1])
    assert note["rounds"] >= 3


def test_a_node_alone_is_mended_by_its_archive(tmp_path: Path) -> None:
    settings = {"url": str(tmp_path / "archive"), "interval_ms": 100}
    with Running(tmp_path, flush="sync", extra={"archive": settings}) as running:
        node = running.master
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("load", queues=1)
        with tandemlog.Producer(running.endpoints) as producer:
            producer.send_many("load", [b"%05d" % number + b"." * 1_000 for number in range(1_500)])
        path = files_of(node)[0]

        def archived() -> bool:
            names = (tmp_path / "archive").rglob(f"{0:020d}*")
            return sum(each.stat().st_size for each in names) >= path.stat().st_size

        wait_until("the first file to be archived", archived)
        right = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(500_000)
            file.write(bytes([right[500_000] ^ 4]))
        after = scrubbed(running, node)
        assert path.read_bytes() == right
        assert after.mended_blocks == 1
        assert not after.open_blocks
        assert "from the archive" in node.tail()
