"""What all synchronous clients have in common: a loop in a thread of the system."""

import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from tandemlog import Admin, Consumer, Message, Producer, ProducerOptions, errors


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 4)
        yield cluster


def test_a_closed_client_says_so(cluster: ThreadedCluster) -> None:
    producer = Producer(cluster.endpoints, ProducerOptions(linger_ms=10_000))
    future = producer.send(Message("orders", b"last"))
    producer.close()
    producer.close()
    assert future.result(0).queue_offset == 0
    with pytest.raises(errors.ClientClosedError):
        producer.send(Message("orders", b""))
    with pytest.raises(errors.ClientClosedError):
        producer.send(Message("bills", b""))
    consumer = Consumer(cluster.endpoints)
    consumer.close()
    consumer.close()
    with pytest.raises(errors.ClientClosedError):
        consumer.ranges()
    admin = Admin(cluster.endpoints)
    admin.close()
    with pytest.raises(errors.ClientClosedError):
        admin.topics()


def test_a_callback_must_not_call_the_client_again(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        seen: list[BaseException] = []
        told = threading.Event()

        def again(_: object) -> None:
            try:
                producer.flush()
            except RuntimeError as error:
                seen.append(error)
            told.set()

        producer.send(Message("orders", b"")).add_done_callback(again)
        assert told.wait(10)
        assert "callback" in str(seen[0])


def test_administration(cluster: ThreadedCluster) -> None:
    with Admin(cluster.endpoints) as admin, Producer(cluster.endpoints) as producer:
        admin.create_topic("bills", 1)
        result = producer.send(Message("bills", b"x", keys="k")).result()
        assert {topic.name for topic in admin.topics()} == {"bills", "orders"}
        assert admin.topic("bills").read_queues == 1
        found = admin.query_by_id(result.msg_id)
        assert found is not None
        assert found.body == b"x"
        assert [each.body for each in admin.query_by_key("bills", "k")] == [b"x"]
        assert len(admin.messages_at([result.physical_offset])) == 1
        assert admin.search_offset("bills", 1) == {("bills", 0): 0}
        assert [each.max_offset for each in admin.ranges("bills")] == [1]
        admin.commit("g", {("bills", 0): 1})
        assert (admin.groups(), admin.committed("g")) == (["g"], {("bills", 0): 1})
        assert admin.cluster().master is not None
        assert admin.stats()["puts_total"] == 1
        assert producer.producer_id is not None
        assert admin.producer(producer.producer_id) is not None
        admin.delete_topic("bills")


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_patched_threads_are_refused_at_once(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    patched = {"threading"}
    module = ModuleType(library)
    module.is_module_patched = patched.__contains__  # type: ignore[attr-defined]
    module.is_monkey_patched = lambda name: "threading" in patched and name == "thread"  # type: ignore[attr-defined]
    name = "gevent.monkey" if library == "gevent" else "eventlet.patcher"
    monkeypatch.setitem(sys.modules, name, module)
    for client in (Producer, Consumer):
        with pytest.raises(errors.MonkeyPatchedError, match=f"{library}'s monkey patching"):
            client(cluster.endpoints)
    patched.clear()
    with Consumer(cluster.endpoints) as consumer:
        assert consumer.ranges() == []
