"""Clients and members: who is in a group, who is told, and what has no room."""

import pytest

from tandemlog_server.rocketmq.clients.client_table import (
    IDS_OF_A_CONNECTION,
    SILENCE_S,
    About,
    Changes,
    ClientLimits,
    ClientTable,
    TooManyClientsError,
)
from tandemlog_server.rocketmq.clients.heartbeats import (
    BROADCASTING,
    Consumer,
    Heartbeat,
    Subscription,
)

Table = ClientTable[str]


def beat(
    table: Table,
    connection: str,
    client_id: str,
    *groups: str,
    producers: frozenset[str] = frozenset(),
    topics: tuple[str, ...] = ("t",),
    now: float = 0.0,
    size: int = 100,
    holder: str = "host",
    identity: str = "",
    version: int = 1,
) -> Changes[str]:
    subscriptions = tuple(Subscription(topic, version=version) for topic in topics)
    return table.heartbeat(
        connection,
        About(holder=holder, identity=identity),
        Heartbeat(
            client_id,
            producers,
            tuple(Consumer(group, subscriptions) for group in groups),
            size=size,
        ),
        now,
    )


def test_members_are_told_of_each_other_once() -> None:
    table = Table()
    first = beat(table, "A", "a", "g")
    assert (first.begun, first.notify) == (["g"], [("g", "A")])
    second = beat(table, "B", "b", "g")
    assert (second.begun, second.notify) == ([], [("g", "A"), ("g", "B")])
    assert beat(table, "B", "b", "g", now=30.0) == Changes()
    assert beat(table, "B", "b", "g", now=31.0, version=2) == Changes()
    assert table.consumer_ids("g") == ["a", "b"]


def test_a_member_ends_with_its_connection() -> None:
    table = Table()
    beat(table, "A", "a", "g")
    beat(table, "B", "b", "g", "h")
    assert table.closed("B").notify == [("g", "A")]
    assert table.consumer_ids("g") == ["a"]
    assert table.consumer_ids("h") == []
    assert table.closed("B") == Changes()
    assert table.groups() == ["g"]


def test_a_client_that_comes_back_by_a_new_connection_is_one_member() -> None:
    table = Table()
    beat(table, "A", "a", "g")
    beat(table, "A2", "a", "g")
    beat(table, "B", "b", "g")
    assert table.consumer_ids("g") == ["a", "b"]
    assert [each.connection for each in table.members("g")] == ["A2", "B"]
    assert table.closed("A").notify == []
    assert table.consumer_ids("g") == ["a", "b"]
    assert table.closed("A2").notify == [("g", "B")]


def test_silence_ends_a_client() -> None:
    table = Table()
    beat(table, "A", "a", "g", now=0.0)
    beat(table, "B", "b", "g", now=30.0)
    assert table.expire(SILENCE_S).notify == []
    assert table.expire(SILENCE_S + 0.1).notify == [("g", "B")]
    assert table.consumer_ids("g") == ["b"]
    assert table.client_count == 1


def test_what_a_heartbeat_does_not_name_is_over() -> None:
    table = Table()
    beat(table, "A", "a", "g", "h")
    beat(table, "B", "b", "g", "h")
    changes = beat(table, "A", "a", "g")
    assert changes.notify == [("h", "B")]
    assert table.consumer_ids("h") == ["b"]


def test_unregister_ends_one_group_and_leaves_the_others() -> None:
    table = Table()
    beat(table, "A", "a", "g", "h", producers=frozenset({"p"}))
    beat(table, "B", "b", "g")
    assert table.unregister("B", "a", "", "g") == Changes()  # it is no client of this connection
    assert table.unregister("A", "a", "", "g").notify == [("g", "B")]
    assert table.unregister("A", "a", "p").notify == []
    assert table.producers("p") == []
    assert table.unregister("A", "a", "", "h").notify == []
    assert not table.knows("A", "a")
    assert table.client_count == 1


def test_other_topics_make_another_balance() -> None:
    table = Table()
    beat(table, "A", "a", "g")
    beat(table, "B", "b", "g")
    changes = beat(table, "A", "a", "g", topics=("t", "u"))
    assert changes.notify == [("g", "A"), ("g", "B")]
    assert sorted(table.subscriptions("g")) == ["t", "u"]
    assert table.groups_of_topic("u") == ["g"]


def test_the_newest_subscription_counts() -> None:
    table = Table()
    for connection, expression, version in (("A", "new", 9), ("B", "old", 3)):
        consumer = Consumer("g", (Subscription("t", expression, version=version),))
        table.heartbeat(connection, About(), Heartbeat(connection, consumers=(consumer,)), 0.0)
    wanted = table.subscription("g", "t")
    assert wanted is not None
    assert wanted.expression == "new"
    table.closed("A")
    wanted = table.subscription("g", "t")
    assert wanted is not None
    assert wanted.expression == "old"
    table.closed("B")
    assert table.subscription("g", "t") is None


def test_the_last_heartbeat_says_whether_a_group_broadcasts() -> None:
    table = Table()
    beat(table, "A", "a", "g", now=1.0)
    assert not table.broadcasts("g")
    consumer = Consumer("g", (), model=BROADCASTING)
    table.heartbeat("B", About(), Heartbeat("b", consumers=(consumer,)), 2.0)
    assert table.broadcasts("g")
    assert not table.broadcasts("nobody")


def test_producers_are_asked_in_turn() -> None:
    table = Table()
    for name in "AB":
        beat(table, name, name.lower(), producers=frozenset({"p"}))
    asked = [table.next_producer("p") for _ in range(4)]
    assert [each.connection for each in asked if each is not None] == ["A", "B", "A", "B"]
    table.closed("A")
    table.closed("B")
    assert table.next_producer("p") is None


def test_a_client_is_found_by_its_id() -> None:
    table = Table()
    beat(table, "A", "a", producers=frozenset({"p"}))
    beat(table, "A2", "a", producers=frozenset({"p"}))
    for connection, left in (("A2", "A"), ("A", None)):
        found = table.client("a")
        assert found is not None
        assert found.connection == connection
        table.closed(connection)
        found = table.client("a")
        assert (None if found is None else found.connection) == left


def test_a_client_that_takes_the_id_of_another_identity_gets_nothing_that_is_for_it() -> None:
    table = Table()
    beat(table, "A", "a", identity="shop")
    beat(table, "X", "a", identity="thief")
    beat(table, "B", "a", identity="shop")
    for connection in ("B", "A"):
        client = table.client("a")
        assert client is not None
        assert client.connection == connection
        table.closed(connection)
    # also while its owner connects again
    assert table.client("a") is None
    beat(table, "C", "a", identity="shop")
    assert getattr(table.client("a"), "connection", "") == "C"
    table.closed("C")
    table.closed("X")
    beat(table, "Y", "a", identity="other")
    assert getattr(table.client("a"), "connection", "") == "Y"


def test_a_short_heartbeat_keeps_what_was_said() -> None:
    table = Table()
    beat(table, "A", "a", "g", now=0.0)
    short = Heartbeat("a", without_subscriptions=True)
    assert table.heartbeat("A", About(), short, 100.0) == Changes()
    table.expire(SILENCE_S + 1)
    assert table.consumer_ids("g") == ["a"]


def test_one_holder_leaves_room_for_others() -> None:
    table = Table(ClientLimits(clients=8))
    for number in range(6):
        beat(table, f"A{number}", f"a{number}", "g", holder="greedy")
    with pytest.raises(TooManyClientsError, match="'greedy' has 6 clients"):
        beat(table, "A6", "a6", "g", holder="greedy")
    beat(table, "B", "b", "g", holder="other")
    beat(table, "A0", "a0", "g", holder="greedy", now=1.0)  # who is there may say that it lives
    table.closed("A1")
    table.closed("A2")
    beat(table, "A6", "a6", "g", holder="greedy")


def test_heartbeats_have_a_bound_in_bytes() -> None:
    table = Table(ClientLimits(total_bytes=1_000))
    beat(table, "A", "a", "g", size=700)
    with pytest.raises(TooManyClientsError, match="bytes of heartbeats"):
        beat(table, "A", "a", "g", size=900)
    with pytest.raises(TooManyClientsError, match="bytes of heartbeats"):
        beat(table, "B", "b", "g", size=400, holder="other")
    beat(table, "A", "a", "g", size=100)
    beat(table, "B", "b", "g", size=400, holder="other")
    table.closed("A")
    table.closed("B")
    beat(table, "C", "c", "g", size=700)


def test_a_group_and_a_connection_have_bounds() -> None:
    table = Table(ClientLimits(members=2))
    beat(table, "A", "a", "g")
    beat(table, "B", "b", "g")
    with pytest.raises(TooManyClientsError, match="group 'g' has 2 members"):
        beat(table, "C", "c", "g")
    assert not table.knows("C", "c")
    beat(table, "B2", "b", "g")
    for number in range(IDS_OF_A_CONNECTION):
        beat(table, "D", f"d{number}", producers=frozenset({"p"}))
    with pytest.raises(TooManyClientsError, match="this connection"):
        beat(table, "D", "one more", producers=frozenset({"p"}))
