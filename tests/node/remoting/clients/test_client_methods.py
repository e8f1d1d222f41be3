"""Clients of RocketMQ on a node: heartbeats, lists of members, and what mqadmin asks about them."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fakes.stores import Bench
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError, not_sure
from tandemlog_server.node.pulls.group_kind import GroupKinds, MemberKind
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.remoting.clients.client_methods import TOLD_AT_ONCE, ClientMethods
from tandemlog_server.node.remoting.clients.lock_methods import LockMethods
from tandemlog_server.node.remoting.cluster.topic_creation import TopicCreation
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.node.roles.role import CurrentRole, NodeRole
from tandemlog_server.rocketmq.clients.client_table import SILENCE_S
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import HANDED_ON
from tandemlog_server.rocketmq.clients.queue_locks import GRACE_S
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command


class Slave(NodeRole):
    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, ""

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return []

    def put_fault(self) -> str:
        return ""

    def read_fault(self) -> str:
        return ""


class Master(Slave):
    """`sure`: whether it knows that it leads."""

    def __init__(self, term: int = 5) -> None:
        self.term = term
        self.sure = True
        self.confirmed: list[str] = []

    def epoch(self) -> int | None:
        return self.term

    async def leads(self) -> int:
        if not self.sure:
            raise not_sure()
        return self.term

    def require_master(self, what: str) -> None:
        return

    async def admit_change(self) -> None:
        return

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        self.confirmed.append(table)


class Link:
    """A client's connection that remembers what was pushed to it."""

    local_address = ("10.0.0.1", 9876)

    def __init__(self, name: str) -> None:
        self.peer = f"ipv4:10.0.0.7:{name}"
        self.closed = False
        self.pushed: list[tuple[int, dict[str, str], bytes]] = []
        self.answer: Command | Exception = Command(0, body=b"{}")
        self._callbacks: list[Callable[[], None]] = []

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        self.pushed.append((code, fields, body))

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        self.pushed.append((code, fields, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        self.closed = True
        for callback in self._callbacks:
            callback()


class Node:
    """The methods on a store in memory."""

    def __init__(self, role: NodeRole | None = None) -> None:
        self.bench = Bench()
        self.now = 1_000.0
        self.current = CurrentRole(role or Master())
        self.kinds = GroupKinds()
        store = self.bench.store
        self.turns = ReadTurns(1, 64 << 20)
        self.clients = ClientMethods(
            store, self.current, self.kinds, TopicCreation(store, self.current, {}), self.time,
            turns=self.turns,
        )  # fmt: skip
        self.locks = LockMethods(store, self.current, self.time)

    def time(self) -> float:
        return self.now

    async def ask(
        self, code: int, link: Link, body: object = None, flag: int = 0, **fields: str
    ) -> Command | None:
        data = b"" if body is None else json.dumps(body).encode()
        request = Command(code, flag=flag, fields=fields, body=data, language="JAVA", version=513)
        methods = {**self.clients.methods(), **self.locks.methods()}
        call = RemotingCall(request, Caller(peer=link.peer), cast("Any", link))
        return await methods[code].serve(call)

    async def beat(self, link: Link, client_id: str, *groups: str) -> Command:
        rows = [
            {"groupName": group, "subscriptionDataSet": [{"topic": "T", "subString": "a||b"}]}
            for group in groups
        ]
        body = {"clientID": client_id, "consumerDataSet": rows, "producerDataSet": []}
        answer = await self.ask(RequestCode.HEART_BEAT, link, body)
        assert answer is not None
        return answer

    async def lock(self, link: Link, client_id: str, *queue_ids: int, flag: int = 0) -> list[int]:
        answer = await self.ask(
            RequestCode.LOCK_BATCH_MQ, link, queues(client_id, *queue_ids), flag
        )
        assert answer is not None
        return [row["queueId"] for row in json.loads(answer.body)["lockOKMQSet"]]


def queues(client_id: str, *queue_ids: int) -> dict[str, object]:
    rows = [{"topic": "T", "brokerName": "b", "queueId": each} for each in queue_ids]
    return {"consumerGroup": "g", "clientId": client_id, "mqSet": rows}


async def test_members_hear_of_each_other_and_get_one_list() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    answer = await node.beat(one, "a", "g")
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "false"}
    await node.beat(two, "b", "g")
    assert one.pushed == [(40, {"consumerGroup": "g"}, b"")] * 2
    for link in (one, two):
        listed = await node.ask(38, link, consumerGroup="g")
        assert listed is not None
        assert json.loads(listed.body) == {"consumerIdList": ["a", "b"]}
    one.pushed.clear()
    two.close()
    assert one.pushed == [(40, {"consumerGroup": "g"}, b"")]
    one.close()
    with pytest.raises(RemotingRefusedError, match="no client consumes"):
        await node.ask(38, one, consumerGroup="g")


async def test_news_for_very_many_is_told_in_turns() -> None:
    """40 clients with the same 40 groups: the last one is news for 1,600 of them."""
    node = Node()
    groups = [f"g{number}" for number in range(40)]
    links = [Link(str(number)) for number in range(40)]
    for number, link in enumerate(links):
        await node.beat(link, f"c{number}", *groups)
    node.clients._untold.clear()
    for link in links:
        link.pushed.clear()
    links[0].close()
    others = links[1:]
    assert sum(len(link.pushed) for link in others) == TOLD_AT_ONCE < len(others) * len(groups)
    running = asyncio.create_task(node.clients.run())
    for _ in range(200):
        await asyncio.sleep(0)
    for link in others:
        assert {fields["consumerGroup"] for _, fields, _ in link.pushed} == set(groups)
    running.cancel()


async def test_a_member_leaves() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    await node.beat(one, "a", "g")
    await node.beat(two, "b", "g")
    one.pushed.clear()
    await node.ask(35, two, clientID="b", consumerGroup="g")
    assert one.pushed == [(40, {"consumerGroup": "g"}, b"")]


async def test_a_master_that_is_not_sure_gives_no_list() -> None:
    node, one = Node(), Link("1")
    await node.beat(one, "a", "g")
    cast("Master", node.current.role).sure = False
    with pytest.raises(RequestRefusedError):
        await node.ask(38, one, consumerGroup="g")


async def test_a_node_that_begins_to_lead_knows_its_members_and_tells_them() -> None:
    node, one = Node(Slave()), Link("1")
    running = asyncio.create_task(node.clients.run())
    await node.beat(one, "a", "g")
    await asyncio.sleep(0)
    assert one.pushed == []
    assert node.bench.store.topics.get("%RETRY%g") is None
    node.current.set(Master())
    node.clients._look_at_term()
    assert one.pushed == [(40, {"consumerGroup": "g"}, b"")]
    async with asyncio.timeout(5):
        while node.bench.store.topics.get("%RETRY%g") is None:  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.01)
    assert "g" in node.bench.store.groups.table
    running.cancel()


async def test_silence_ends_a_member() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    await node.beat(one, "a", "g")
    node.now += 60
    await node.beat(two, "b", "g")
    node.now += SILENCE_S - 50
    running = asyncio.create_task(node.clients.run())
    await asyncio.sleep(0.01)
    assert node.clients.table.consumer_ids("g") == ["b"]
    running.cancel()


async def test_a_member_of_another_kind_is_refused() -> None:
    node, one = Node(), Link("1")
    node.kinds.count_by(MemberKind.OWN, lambda group: 2 if group == "g" else 0)
    with pytest.raises(RequestRefusedError, match="has 2 members of this project's own") as refusal:
        await node.beat(one, "a", "g")
    assert refusal.value.code == common_pb2.GROUP_HAS_MEMBERS
    assert node.clients.table.client_count == 0
    await node.beat(one, "a", "h")
    with pytest.raises(RequestRefusedError, match="has 1 member of RocketMQ's clients"):
        node.kinds.require(MemberKind.OWN, "h")
    with pytest.raises(RequestRefusedError, match="has 1 member of RocketMQ's clients"):
        node.kinds.require(MemberKind.WORK, "h")
    one.close()
    node.kinds.require(MemberKind.OWN, "h")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"expressionType": "SQL92", "subString": "a > 3 AND b IS NOT NULL"}, ""),
        ({"expressionType": "TAG", "subString": "a || b"}, ""),
        (None, ""),
        ({"expressionType": "SQL92", "subString": "a >"}, "cannot be read"),
        ({"expressionType": "JS", "subString": "x"}, "type 'JS' is not known"),
    ],
)
async def test_a_filter_is_checked(row: dict[str, str] | None, says: str) -> None:
    node, one = Node(), Link("1")
    body = {"clientId": "a", "group": "g", "subscriptionData": row}
    if not says:
        answer = await node.ask(46, one, body)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        return
    with pytest.raises(RemotingRefusedError, match=says) as refusal:
        await node.ask(46, one, body)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_mqadmin_sees_who_is_connected() -> None:
    node, one = Node(), Link("4711")
    await node.beat(one, "a", "g")
    answer = await node.ask(203, one, consumerGroup="g")
    assert answer is not None
    shown = json.loads(answer.body)
    assert shown["connectionSet"] == [
        {"clientAddr": "10.0.0.7:4711", "clientId": "a", "language": "JAVA", "version": 513}
    ]
    assert shown["messageModel"] == "CLUSTERING"
    assert shown["subscriptionTable"]["T"]["tagsSet"] == ["a", "b"]
    assert shown["subscriptionTable"]["T"]["codeSet"] == [97, 98]
    with pytest.raises(RemotingRefusedError) as refusal:
        await node.ask(203, one, consumerGroup="h")
    assert refusal.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    with pytest.raises(RemotingRefusedError, match="no client sends"):
        await node.ask(204, one, producerGroup="p")
    groups = await node.ask(300, one, topic="T")
    assert groups is not None
    assert json.loads(groups.body) == {"groupList": ["g"]}


async def test_what_is_said_of_many_members_counts_until_it_is_taken() -> None:
    """A client may ask for it hundreds of times in one packet, and take nothing."""
    node = Node()
    links = [Link(str(number)) for number in range(70)]
    for number, link in enumerate(links):
        await node.beat(link, f"{number}-{'x' * 200}", "g")
    for code, fields in ((38, {"consumerGroup": "g"}), (203, {"consumerGroup": "g"})):
        caller = Caller(peer="ipv4:10.0.0.9:1")
        call = RemotingCall(Command(code, fields=fields), caller, cast("Any", links[0]))
        answer = await node.clients.methods()[code].serve(call)
        assert answer is not None
        assert node.turns.held_bytes == caller.held_bytes >= len(answer.body)
        node.turns.release(caller)


async def test_a_question_is_forwarded_to_the_client() -> None:
    node, one = Node(), Link("1")
    await node.beat(one, "a", "g")
    one.answer = Command(0, body=b'{"properties":{}}')
    # with the last three of these the client could ask in the name of whoever has asked
    answer = await node.ask(
        307, Link("2"), consumerGroup="g", clientId="a", jstackEnable="true",
        AccessKey="admin", Signature="abc=", SecurityToken="t",
    )  # fmt: skip
    assert answer is not None
    assert answer.body == b'{"properties":{}}'
    fields = {"consumerGroup": "g", "clientId": "a", "jstackEnable": "true"}
    assert one.pushed[-1] == (307, fields, b"")
    for failure, code in ((ConnectionError(), 206), (TimeoutError(), 207)):
        one.answer = failure
        with pytest.raises(RemotingRefusedError) as refusal:
            await node.ask(307, Link("2"), consumerGroup="g", clientId="a")
        assert refusal.value.code == code
    with pytest.raises(RemotingRefusedError, match="client 'b'"):
        await node.ask(307, Link("2"), consumerGroup="g", clientId="b")


# ---- locks


async def test_a_lock_is_told_once_it_is_durable_and_renewed_without_a_write() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    role = cast("Master", node.current.role)
    assert await node.lock(one, "a", 0, 1) == [0, 1]
    assert role.confirmed == ["group-members"]
    members = node.bench.store.group_members
    assert members.lock_rows() == {"g": {"T": {"0": "a", "1": "a"}}}
    version = members.version
    assert await node.lock(one, "a", 0, 1) == [0, 1]
    assert await node.lock(two, "b", 0, 1, 2) == [2]
    assert members.version == version + 1
    await node.ask(RequestCode.UNLOCK_BATCH_MQ, one, queues("a", 0), ONEWAY_FLAG)
    assert await node.lock(two, "b", 0) == [0]


async def test_an_unlock_that_was_handed_on_changes_nothing() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    assert await node.lock(one, "a", 0) == [0]
    flag = ONEWAY_FLAG | HANDED_ON
    await node.ask(RequestCode.UNLOCK_BATCH_MQ, one, queues("a", 0), flag)
    assert await node.lock(two, "b", 0) == []


async def test_a_deposed_master_grants_and_renews_nothing() -> None:
    node, one = Node(), Link("1")
    assert await node.lock(one, "a", 0) == [0]
    cast("Master", node.current.role).sure = False
    with pytest.raises(RequestRefusedError):
        await node.lock(one, "a", 0)


async def test_the_next_term_waits_for_owners_of_the_one_before() -> None:
    node, one, two = Node(), Link("1"), Link("2")
    assert await node.lock(one, "a", 0) == [0]
    node.current.set(Master(6))
    assert await node.lock(two, "b", 0, 1) == [1]
    assert await node.lock(one, "a", 0) == [0]
    node.current.set(Master(7))
    assert await node.lock(two, "b", 0) == []
    node.now += GRACE_S
    assert await node.lock(two, "b", 0) == [0]
    assert node.bench.store.group_members.lock_rows() == {"g": {"T": {"0": "b", "1": "b"}}}


async def test_locks_that_ended_are_not_written_as_locked_for_ever() -> None:
    node, one = Node(), Link("1")
    assert await node.lock(one, "a", 0) == [0]
    await node.ask(RequestCode.UNLOCK_BATCH_MQ, one, queues("a", 0), ONEWAY_FLAG)
    running = asyncio.create_task(node.locks.run())
    async with asyncio.timeout(5):
        while node.bench.store.group_members.lock_rows():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.01)
    running.cancel()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"consumerGroup": "g", "clientId": "a", "mqSet": {}},
        {"consumerGroup": "g", "clientId": "a", "mqSet": [{"topic": "T", "brokerName": "b"}]},
        {"consumerGroup": "a b", "clientId": "a", "mqSet": []},
        queues("a", *range(5_000)),
    ],
)
async def test_a_bad_request_for_locks_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"mqSet|queueId|consumerGroup|clientId"):
        await Node().ask(RequestCode.LOCK_BATCH_MQ, Link("1"), body)
