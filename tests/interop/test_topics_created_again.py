"""A topic that a real broker deleted and created again: the log has each number twice.

Whatever opens the broker's store leaves its queues as they are and serves the live messages; the
broker goes on with the store afterwards, and serves what it served before. The same for a node that
follows the broker meanwhile, and takes over.
"""

import shutil
from pathlib import Path

import pytest

import tandemlog
from fakes.stores import records_of
from helpers import forked
from helpers.running import wait_until
from interop.live import TOPIC, check_alone, side_by_side
from interop.rocketmq import Broker, NameServer, StoreSizes
from interop.store_client import StoreClient, served
from interop.test_following import takeover
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.rebuild import RebuildOptions
from tandemlog.logs.jobs.rebuild import rebuild as pipeline_rebuild
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.interop

SIZES = StoreSizes(
    commit_log_file_size=262_144, queue_file_size=100, index_slots=200, index_entries=800
)
AGAIN = "Again"
LIVE = [f"live-{number}" for number in range(10)]


def config_of(store: Path) -> StoreConfig:
    return StoreConfig(
        store,
        commit_log_file_size=SIZES.commit_log_file_size,
        queue_file_size=SIZES.queue_file_size,
        index_slots=SIZES.index_slots,
        index_entries=SIZES.index_entries,
    )


def write_again(client: StoreClient, topic: str, live: int = 10) -> None:
    """12 messages, the topic deleted and created again, 10 live ones in queue 0."""
    client.create_topic(topic, 2)
    client.call("send", topic, 0, 12, "deleted")
    client.call("send", topic, 1, 3, "deleted-too")
    client.delete_topic(topic)
    client.create_topic(topic, 2)
    client.call("send", topic, 0, live, "live")


def queue_files(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module", params=["5.5.0", "4.9.7"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a broker stopped cleanly on."""
    folder = tmp_path_factory.mktemp("again")
    name_server = NameServer(folder / "namesrv", request.param)
    broker = Broker(folder / "broker", request.param)
    client = None
    try:
        name_server.start()
        broker.start(name_server, folder / "store", SIZES, timerWheelEnable="true")
        broker.wait_until_serving()
        client = StoreClient(name_server, folder / "client", request.param)
        write_again(client, AGAIN)
        broker.stop()
        (folder / "version").write_text(request.param)
        return folder
    finally:
        if client is not None:
            client.kill()
        broker.kill()
        name_server.kill()


def recovered(store: Path) -> None:
    recover(config_of(store))


def rebuilt(store: Path) -> None:
    rebuild(config_of(store))


def opened(store: Path) -> None:
    MessageStore.open(config_of(store)).close()


@pytest.mark.parametrize("act", [recovered, rebuilt, opened])
def test_the_brokers_queues_stay(written: Path, tmp_path: Path, act) -> None:  # type: ignore[no-untyped-def]
    version = (written / "version").read_text()
    store = Path(shutil.copytree(written / "store", tmp_path / "store"))
    before = queue_files(store)
    assert [str(fault) for fault in verify(config_of(store)).faults] == []
    act(store)
    after = queue_files(store)
    assert {name: after.get(name) for name in before} == before
    report = verify(config_of(store))
    assert [str(fault) for fault in report.faults] == []
    assert any("began again" in note for note in report.notes)
    assert bodies_of(store) == [f"live-body-{number}".encode() for number in range(10)]
    if act is not rebuilt:
        assert after == before
    with served(store, SIZES, tmp_path / "back", AGAIN, version=version) as (_, client):
        rows = client.call("pull", AGAIN, 0)["messages"]
        assert [row["keys"] for row in rows] == LIVE


def bodies_of(store: Path) -> list[bytes]:
    found = MessageStore.open(config_of(store))
    try:
        bodies: list[bytes] = []
        while (result := found.reader.get(AGAIN, 0, len(bodies), 32, 1 << 20)).count:
            bodies += [record.body for record in records_of(result)]
        return bodies
    finally:
        found.close()


def test_the_pipeline_makes_the_brokers_queues(written: Path, tmp_path: Path) -> None:
    store = written / "store"
    result = audit(InProcess(2), store)
    assert not [finding for finding in result.findings if finding.fault]
    options = RebuildOptions(
        index_slots=SIZES.index_slots,
        index_entries=SIZES.index_entries,
        queue_file_size=SIZES.queue_file_size,
    )
    pipeline_rebuild(InProcess(2), store, tmp_path / "out", options)
    made, held = queue_files(tmp_path / "out"), queue_files(store)
    assert {name: made.get(name) for name in held} == held


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_follower_and_its_takeover_serve_the_live_messages(tmp_path: Path, version: str) -> None:
    with side_by_side(tmp_path, version, timerWheelEnable="true") as pair:
        node = pair.follow()
        with pair.load(messages=100) as load:
            load.wait_for_end()
        pair.caught_up()
        pair.client.call("send", TOPIC, 0, 12, "more")
        write_again(pair.client, AGAIN)
        end = pair.caught_up()
        live = [f"live-body-{number}".encode() for number in range(10)]
        wait_until(
            "the topic to be known",
            lambda: AGAIN in [each.name for each in _topics(node.endpoint)], 60,
        )  # fmt: skip
        assert [record.body for record in node.read_queue(AGAIN, 0)] == live
        assert end > 0
        pair.broker.stop()
        done = takeover(node.endpoint)
        assert done.returncode == 0, done.stderr
        with (
            tandemlog.Consumer(node.endpoint, group="readers") as ours,
            ours.follow(AGAIN, until_end=True) as stream,
        ):
            got = [message.body for message in stream]
        assert sorted(body for body in got if body.startswith(b"live")) == sorted(live)
        with tandemlog.Producer(node.endpoint) as producer:
            message = tandemlog.Message(AGAIN, b"next", queue_id=0)
            assert producer.send(message).result(30).queue_offset == 10
        assert node.stop() == 0
        check_alone(node.store)


def _topics(endpoint: str) -> list[tandemlog.TopicInfo]:
    with tandemlog.Admin(endpoint) as admin:
        return list(admin.topics())


def test_the_commands_hold(written: Path, tmp_path: Path) -> None:
    store = shutil.copytree(written / "store", tmp_path / "store")
    sizes = ["--index-slots", str(SIZES.index_slots), "--index-entries", str(SIZES.index_entries)]
    for command in (["verify"], ["recover"], ["verify"]):
        done = forked.run(*command, str(store), *sizes, timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr
