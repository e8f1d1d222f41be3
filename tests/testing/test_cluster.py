"""The cluster of a test: it starts and stops, fails on demand, and keeps what a disk keeps."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from helpers.running import wait_until
from tandemlog import Admin, Consumer, Message, Producer, ProducerOptions, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.testing import AsyncCluster, Cluster, NodeClock

IMPATIENT = ProducerOptions(
    linger_ms=0,
    delivery_timeout_ms=400,
    connection=ConnectionOptions(retry_timeout_ms=400),
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2}) as cluster:
        yield cluster


def put(cluster: Cluster, *bodies: bytes, topic: str = "orders") -> None:
    with Producer(cluster.endpoint, ProducerOptions(linger_ms=0)) as producer:
        for body in bodies:
            producer.send(Message(topic, body, queue_id=0)).result(60)


def held(cluster: Cluster, topic: str = "orders") -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


def refusal(producer: Producer) -> errors.TandemlogError:
    """The error of the first put that fails: what was broken shows after a moment."""
    for _ in range(10_000):
        problem = producer.send(Message("orders", b"x", queue_id=0)).exception(60)
        if problem is not None:
            assert isinstance(problem, errors.TandemlogError)
            return problem
    raise AssertionError("every put was acknowledged")


def test_messages_are_listed_in_the_order_of_the_log(cluster: Cluster) -> None:
    with Producer(cluster.endpoint, ProducerOptions(linger_ms=0)) as producer:
        for number in range(6):
            producer.send(Message("orders", b"%d" % number, queue_id=number % 2)).result(60)
    assert held(cluster) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [each.body for each in cluster.messages("orders", queue_id=1)] == [b"1", b"3", b"5"]
    with pytest.raises(errors.UnknownTopicError, match="elsewhere"):
        cluster.messages("elsewhere")


def test_topics_are_added_and_removed(cluster: Cluster) -> None:
    cluster.create_topic("more", queues=1)
    put(cluster, b"x", topic="more")
    assert held(cluster, "more") == [b"x"]
    cluster.delete_topic("more")
    with pytest.raises(errors.UnknownTopicError):
        cluster.messages("more")


def test_clear_leaves_the_declared_topics_alone(cluster: Cluster) -> None:
    put(cluster, b"x")
    cluster.create_topic("more")
    with Consumer(cluster.endpoint, group="g") as consumer:
        consumer.commit({("orders", 0): 1})
    endpoint = cluster.endpoint
    cluster.clear()
    assert cluster.endpoint == endpoint
    assert held(cluster) == []
    with Admin(cluster.endpoint) as admin:
        assert [topic.name for topic in admin.topics()] == ["orders"]
        assert admin.groups() == []
    put(cluster, b"y")
    assert cluster.messages("orders")[0].queue_offset == 0


def test_a_client_outlives_a_restart(cluster: Cluster) -> None:
    with Producer(cluster.endpoint, ProducerOptions(linger_ms=0)) as producer:
        producer.send(Message("orders", b"before", queue_id=0)).result(60)
        cluster.restart("n0")
        producer.send(Message("orders", b"after", queue_id=0)).result(60)
    assert held(cluster) == [b"before", b"after"]


def test_a_full_disk_refuses_puts_until_there_is_space(cluster: Cluster) -> None:
    put(cluster, b"kept")
    cluster.fill_disk()
    with Producer(cluster.endpoint, IMPATIENT) as producer:
        # one whose time ends while the node has it may have no outcome
        assert any(isinstance(refusal(producer), errors.DiskFullError) for _ in range(10))
    cluster.free_disk()
    put(cluster, b"again")
    assert [body for body in held(cluster) if body != b"x"] == [b"kept", b"again"]


def test_a_failed_flush_makes_the_node_read_only(cluster: Cluster) -> None:
    put(cluster, b"kept")
    cluster.disk().fail("fdatasync", name="commitlog")
    with Producer(cluster.endpoint, IMPATIENT) as producer:
        # the put that the node holds as the flush fails may have no outcome
        assert any(isinstance(refusal(producer), errors.StoreReadOnlyError) for _ in range(10))
    assert held(cluster)[0] == b"kept"


def test_the_date_moves_forward(cluster: Cluster) -> None:
    put(cluster, b"today")
    cluster.clock.advance(timedelta(days=2))
    put(cluster, b"in two days")
    first, second = cluster.messages("orders")
    assert second.store_timestamp - first.store_timestamp >= 2 * 86_400_000
    with Admin(cluster.endpoint) as admin:
        tomorrow = first.store_time + timedelta(days=1)
        assert admin.search_offset("orders", tomorrow, queue_id=0) == {("orders", 0): 1}


def test_the_date_does_not_move_backward() -> None:
    clock = NodeClock()
    clock.set(datetime(2100, 1, 1, tzinfo=UTC))
    assert clock.now().year == 2100
    before = clock.now_ms()
    clock.advance(1.5)
    assert clock.now_ms() - before >= 1_500
    with pytest.raises(ValueError, match="only move forward"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="only move forward"):
        clock.set(datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="time zone"):
        clock.set(datetime(2200, 1, 1))


def test_another_node_takes_over() -> None:
    with Cluster(topics={"orders": 1}, nodes=2) as cluster:
        with Producer(cluster.endpoint, ProducerOptions(linger_ms=0)) as producer:
            producer.send(Message("orders", b"before")).result(60)
            stopped = cluster.stop_master()
            assert cluster.master() != stopped
            producer.send(Message("orders", b"after")).result(60)
            cluster.restart(stopped)
            assert held(cluster) == [b"before", b"after"]
            assert cluster.stop_master() != stopped
            assert cluster.master() == stopped
            producer.send(Message("orders", b"back")).result(60)
        assert held(cluster) == [b"before", b"after", b"back"]


def test_too_few_nodes_are_in_sync() -> None:
    both = {"replication": {"min_in_sync": 2}}
    with (
        Cluster({"orders": 1}, nodes=2, settings=both) as cluster,
        Producer(cluster.endpoint, IMPATIENT) as producer,
    ):

        def stored() -> bool:
            """Its time is short, on a busy machine too short at first."""
            return producer.send(Message("orders", b"both have it")).exception(60) is None

        wait_until("both to have one", stored)
        [slave] = set(cluster.nodes) - {cluster.master()}
        cluster.stop_node(slave)
        assert isinstance(refusal(producer), errors.NotInSyncError | errors.OutcomeUnknownError)


def test_settings_are_those_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEMLOG_CLUSTER_ID", "another")  # meant for a real node
    monkeypatch.setenv("TANDEMLOG_STORE__MAX_MESSAGE_SIZE", "1")
    with Cluster({"t": 1}, settings={"store": {"max_message_size": 100}}) as cluster:
        with Admin(cluster.endpoint) as admin:
            assert admin.cluster().cluster_id == "testing"
        put(cluster, b"x" * 100, topic="t")
        with (
            Producer(cluster.endpoint) as producer,
            pytest.raises(errors.MessageTooLargeError, match="max_message_size is 100"),
        ):
            producer.send(Message("t", b"x" * 101))
    with pytest.raises(ValidationError, match="no_such_setting"):
        Cluster(settings={"store": {"no_such_setting": 1}}).start()
    with pytest.raises(ValueError, match="1 to 5 nodes"):
        Cluster(nodes=0)


def test_nothing_works_before_the_start_and_after_the_end() -> None:
    cluster = Cluster()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.messages("t")
    with cluster:
        endpoint = cluster.endpoint
        with pytest.raises(ValueError, match="the nodes are n0"):
            cluster.stop_node("n7")
    with pytest.raises(RuntimeError, match="not running"):
        cluster.endpoint  # noqa: B018
    with pytest.raises(errors.NoNodeError):
        Admin(endpoint, connection=IMPATIENT.connection).topics()
    cluster.stop()  # again: nothing happens


def test_the_disk_of_the_machine_is_not_touched(cluster: Cluster) -> None:
    put(cluster, b"x")
    assert not Path("/store").exists()
    assert cluster.disk().listdir(Path("/store/commitlog")) != []


async def test_asyncio() -> None:
    async with AsyncCluster({"orders": 1}) as cluster:
        await cluster.create_topic("more", 1)
        assert (await cluster.master(), cluster.nodes) == ("n0", ["n0"])
        assert await cluster.messages("more") == []
        await cluster.clear()
        with pytest.raises(errors.UnknownTopicError):
            await cluster.messages("more")


def test_both_faces_have_the_same_names() -> None:
    def names(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert names(Cluster) == names(AsyncCluster)
