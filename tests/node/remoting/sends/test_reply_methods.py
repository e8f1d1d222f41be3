"""Replies: to the client that waits, into the log, and what the sender hears of both."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fakes.inner_node import config, running, until
from fakes.pushed_to import PushedTo
from fakes.stores import records_of
from tandemlog_server.node.access.access_refusals import DeniedError
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity
from tandemlog_server.node.access.patterns import Patterns
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.node.remoting.sends.joint_sends import JointSends
from tandemlog_server.node.remoting.sends.reply_methods import ReplyMethods
from tandemlog_server.node.remoting.sends.send_methods import SendMethods
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.stored_properties import BrokerFacts
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, RESPONSE_FLAG, Command
from tandemlog_server.storage.metadata.topics import TopicConfig

TOPIC = "c_REPLY_TOPIC"
REPLY = {
    "a": "CLIENT_INNER_PRODUCER",
    "b": TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "0",
    "g": "17",
    "h": "0",
    "i": "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01me\x02CORRELATION_ID\x01c1\x02UNIQ_KEY\x01U1\x02",
    "j": "0",
}


class NoTopics:
    """Makes no topic."""

    async def create_topic(self, name: str, *, model: str, queues: int) -> TopicConfig:
        raise RemotingRefusedError(17, f"no topic {name}")

    async def create_of_group(self, name: str, *, queues: int = 1) -> TopicConfig:
        raise RemotingRefusedError(17, f"no topic {name}")


@dataclass
class ClientAt:
    connection: PushedTo = field(default_factory=PushedTo)


@dataclass
class Replies:
    """A node, its methods, and the client `me`."""

    node: Node
    methods: ReplyMethods
    me: ClientAt
    caller: Caller = field(default_factory=Caller)

    async def send(self, flag: int = 0, **fields: str) -> Command | None:
        request = Command(RequestCode.SEND_REPLY_MESSAGE_V2, 7, flag, "", REPLY | fields, b"yes")
        serve = self.methods.methods()[request.code].serve
        return await serve(RemotingCall(request, self.caller, PushedTo()))

    def stored(self) -> int:
        return sum(self.node.store.reader.get(TOPIC, each, 0, 0, 1 << 20).count for each in (0, 1))


@pytest.fixture
async def replies(tmp_path: Path) -> AsyncIterator[Replies]:
    async with running(config(tmp_path)) as node:
        node.store.create_topic(TopicConfig(TOPIC, 2, 2))
        joint = JointSends(node.pump, node.terms, timeout_s=5.0, most_parked_bytes=1 << 20)
        facts = BrokerFacts("c")
        sends = SendMethods(
            node.store,
            joint,
            NoTopics(),
            node._turns,
            facts,
            broker_name="b",
            new_key=lambda: "K",
        )
        me = ClientAt()
        client_of = {"me": me}.get
        yield Replies(node, ReplyMethods(node.store, sends, client_of), me)
        joint.close()


async def test_a_reply_reaches_its_client_and_is_stored(replies: Replies) -> None:
    answer = await replies.send()
    assert answer is not None
    assert (answer.code, answer.remark, answer.opaque) == (0, "", 7)
    assert len(answer.fields["msgId"]) == 32
    [(code, fields, body)] = replies.me.connection.asked
    assert (code, body, fields["topic"]) == (326, b"yes", TOPIC)
    facts = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
    assert fields["properties"].startswith(REPLY["i"] + facts + "PUSH_REPLY_TIME\x01")
    assert fields["bornHost"] == "10.0.0.7:51234"
    assert fields["queueId"] == answer.fields["queueId"]
    await until(lambda: replies.stored() == 1)


async def test_it_is_stored_with_the_properties_that_it_came_with(replies: Replies) -> None:
    await replies.send(e="1")
    await until(lambda: replies.stored() == 1)
    [record] = records_of(replies.node.store.reader.get(TOPIC, 1, 0, 0, 1 << 20))
    assert record.properties_raw == REPLY["i"].encode()
    assert (record.body, record.born_timestamp) == (b"yes", 17)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ConnectionError("gone"), "fail: gone"),
        (TimeoutError("did not answer"), "fail: did not answer"),
        (Command(1, flag=RESPONSE_FLAG, remark="no"), "it answered 1 no"),
    ],
)
async def test_a_reply_that_its_client_does_not_take(
    replies: Replies, answer: Command | Exception, text: str
) -> None:
    replies.me.connection.answer = answer
    heard = await replies.send()
    assert heard is not None
    assert heard.code == 1
    assert text in heard.remark
    await until(lambda: replies.stored() == 1)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ("MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01you\x02", "channel of <'you'> not found"),
        ("MSG_TYPE\x01reply\x02", "properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_a_reply_to_a_client_that_is_not_there(
    replies: Replies, properties: str, text: str
) -> None:
    heard = await replies.send(i=properties)
    assert heard is not None
    assert heard.code == 1
    assert text in heard.remark
    assert replies.me.connection.asked == []
    await until(lambda: replies.stored() == 1)


async def test_a_connection_that_has_ended_is_no_client(replies: Replies) -> None:
    replies.me.connection.closed = True
    heard = await replies.send()
    assert heard is not None
    assert heard.code == 1
    assert replies.me.connection.asked == []


async def test_a_reply_that_cannot_be_stored_has_reached_its_client(replies: Replies) -> None:
    replies.node.pump.refuse_new()
    answer = await replies.send()
    assert answer is not None
    assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")
    assert len(replies.me.connection.asked) == 1


async def test_a_oneway_reply_is_not_answered(replies: Replies) -> None:
    assert await replies.send(ONEWAY_FLAG) is None
    assert len(replies.me.connection.asked) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"b": "other"}, "no topic other"), ({"e": "9"}, "queueId"), ({"e": "x"}, "field 'e'")],
)
async def test_a_reply_that_is_not_looked_at(
    replies: Replies, fields: dict[str, str], text: str
) -> None:
    with pytest.raises(RemotingRefusedError, match=text):
        await replies.send(0, **fields)
    assert replies.me.connection.asked == []


async def test_who_replies_may_write_the_topic(replies: Replies) -> None:
    stranger = Caller(who=Who(Identity("stranger", write=Patterns(["U"])), frozenset()))
    with pytest.raises(DeniedError):
        await replace(replies, caller=stranger).send()
    assert replies.me.connection.asked == []
