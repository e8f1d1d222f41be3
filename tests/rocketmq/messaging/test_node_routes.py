"""Routes over nodes: any of them may be killed or frozen, and a client still has a way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.node_routes import entries_of, queues_of, types_of
from tandemlog_server.storage.metadata.topics import TopicConfig


def hosts(entries: list[v2.Endpoints]) -> list[list[str]]:
    return [[f"{each.host}:{each.port}" for each in entry.addresses] for entry in entries]


def test_entries_are_rotating_pairs() -> None:
    a, b, c = "10.0.0.1:8081", "10.0.0.2:8081", "10.0.0.3:8081"
    assert sorted(hosts(entries_of([a]))) == [[a]]
    assert sorted(hosts(entries_of([a, b]))) == [[a, b], [b]]
    assert sorted(hosts(entries_of([a, b, c]))) == [[a, b], [b, c], [c, a]]
    assert sorted(hosts(entries_of([a, b, c], alone=True))) == [[a], [b], [c]]


@given(st.integers(1, 12), st.text(max_size=20))
def test_every_node_may_be_lost(count: int, client_id: str) -> None:
    addresses = [f"10.0.0.{number}:8081" for number in range(1, count + 1)]
    entries = hosts(entries_of(addresses, client_id))
    assert len(entries) == count
    assert len({frozenset(each) for each in entries}) == count  # one connection each
    assert {each for entry in entries for each in entry} == set(addresses)
    for lost in addresses if count > 1 else ():
        # frozen: an entry without it is left, or, of two nodes, one that is connected to the other;
        # killed: every entry of two has another address
        assert any(lost not in entry for entry in entries) or count == 2
        assert any(entry != [lost] for entry in entries)
        assert all(set(entry) - {lost} for entry in entries if len(entry) > 1)


@pytest.mark.parametrize(
    ("addresses", "scheme"),
    [
        (["mq-1.example.org:1", "mq-2.example.org:1"], v2.DOMAIN_NAME),
        (["[::1]:1", "[::2]:1"], v2.IPV6),
        (["10.0.0.1:1", "10.0.0.2:1"], v2.IPV4),
    ],
)
def test_a_host_name_is_alone_in_its_entry(addresses: list[str], scheme: int) -> None:
    entries = entries_of(addresses)
    assert {each.scheme for each in entries} == {scheme}
    most = max(len(each.addresses) for each in entries)
    assert most == (1 if scheme == v2.DOMAIN_NAME else 2)
    assert all("[" not in each.host for entry in entries for each in entry.addresses)


def test_clients_use_only_queues_of_broker_0_that_take_their_type() -> None:
    queues = queues_of(
        TopicConfig("T"), v2.Resource(name="T"), "b", entries_of(["10.0.0.1:1", "10.0.0.2:1"])
    )
    assert [each.broker.id for each in queues] == [0, 0]
    assert {each.permission for each in queues} == {v2.READ_WRITE}
    assert list(queues[0].accept_message_types) == [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]


def test_a_send_can_be_tried_again_at_every_entry() -> None:
    """Clients try a send again at another broker's name, and that of Node.js at queue 0 alone."""
    a, b, c = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"

    def by_name(addresses: list[str]) -> dict[str, tuple[int, list[str]]]:
        entries = entries_of(addresses, "me", alone=True)
        queues = queues_of(TopicConfig("T"), v2.Resource(name="T"), "b", entries)
        return {each.broker.name: (each.id, hosts([each.broker.endpoints])[0]) for each in queues}

    assert by_name([a, b, c]) == {f"b@{each}": (0, [each]) for each in (a, b, c)}
    # a consumer keeps what it polls by this name: it means the same node when another one is gone
    assert by_name([b, c]).items() <= by_name([a, b, c]).items()


def test_a_topic_may_take_one_type() -> None:
    assert types_of(TopicConfig("T", attributes={"message.type": "FIFO"})) == (v2.FIFO,)
    assert types_of(TopicConfig("T", attributes={"+message.type": "DELAY"})) == (v2.DELAY,)
    assert len(types_of(TopicConfig("T", attributes={"message.type": "MIXED"}))) == 4
