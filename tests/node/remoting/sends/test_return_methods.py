"""Messages that consumers send back, and those that are called back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.forged_records import forged_head
from fakes.send_rig import SendRig, send_rig
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity
from tandemlog_server.node.access.patterns import Patterns
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.rocketmq.clients.codes import RequestCode

KEY = "UNIQ_KEY\x01AB\x02"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SendRig]:
    async with send_rig(tmp_path, "T", "U") as rig:
        yield rig


async def sent_back(rig: SendRig, **fields: str) -> int:
    usual = {"group": "g", "offset": "0", "originMsgId": "AB", "originTopic": "T"}
    answer = await rig.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**usual, **fields})
    assert answer is not None
    return answer.code


async def test_a_message_is_retried_at_the_level_of_its_times(rig: SendRig) -> None:
    await rig.send("U", b"first")
    await rig.send("T", b"x", properties=KEY + "TAGS\x01pay\x02", j="2", e="1")
    (record,) = await rig.records("T", 1)
    offset = str(record.physical_offset)
    assert await sent_back(rig, offset=offset, maxReconsumeTimes="16") == 0
    (again,) = await rig.records("SCHEDULE_TOPIC_XXXX", 4)
    assert again.reconsume_times == 3
    assert (again.body, again.born_host) == (b"x", record.born_host)
    said = again.properties
    assert {name: said[name] for name in ("REAL_TOPIC", "RETRY_TOPIC", "DELAY", "TAGS")} == {
        "REAL_TOPIC": "%RETRY%g",
        "RETRY_TOPIC": "T",
        "DELAY": "5",
        "TAGS": "pay",
    }
    assert said["ORIGIN_MESSAGE_ID"] == record.msg_id
    assert rig.node.store.topics.get("%RETRY%g") is not None


@pytest.mark.parametrize("fields", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
async def test_a_message_is_a_dead_letter(rig: SendRig, fields: dict[str, str]) -> None:
    await rig.send("T", b"x", properties=KEY)
    assert await sent_back(rig, **fields) == 0
    (letter,) = await rig.records("%DLQ%g")
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"x", "T")


async def test_the_place_of_a_message_is_not_believed(rig: SendRig) -> None:
    await rig.send("T", b"x", properties=KEY)
    (record,) = await rig.records("T")
    assert await sent_back(rig, originMsgId=record.msg_id) == 0, "the id by place is one too"
    for fields, why in (
        ({"originMsgId": "AC"}, "its id"),
        ({"originTopic": "U"}, "its topic"),
        ({"offset": "7"}, "log offset 7"),
        ({"offset": "-1"}, "log offset -1"),
        ({"offset": str(1 << 40)}, "log offset"),
        ({"offset": "x"}, "'offset'"),
        ({"group": ""}, "'group'"),
    ):
        with pytest.raises(RemotingRefusedError, match=why):
            await sent_back(rig, **fields)
    half = {"originTopic": "SCHEDULE_TOPIC_XXXX", "originMsgId": ""}
    (waiting,) = await rig.records("SCHEDULE_TOPIC_XXXX", 2)
    with pytest.raises(RemotingRefusedError, match="own topics"):
        await sent_back(rig, offset=str(waiting.physical_offset), **half)


async def test_a_body_that_looks_like_a_record_is_not_sent_back(rig: SendRig) -> None:
    """It would be copied to the group's own topic, with the messages behind it as properties."""
    rights = Identity("other", read=Patterns(["T"]), consume=Patterns(["g"]))
    other = Caller(who=Who(rights, frozenset()))
    store = rig.node.store
    head = len(forged_head(0, topic="T"))
    await rig.send("T", b"~" * head, properties=KEY)
    (probe,) = await rig.records("T")
    body_at = store.reader.record_at(probe.physical_offset).index(b"~" * head)
    position = store.log.wrote.value + body_at
    await rig.send("T", forged_head(position, topic="T"), properties=KEY)
    await rig.send("U", b"a secret" * 300)
    await rig.records("U")
    assert b"a secret" in store.reader.record_at(position), "it looks like a record"
    usual = {"group": "g", "delayLevel": "-1", "originTopic": "T"}
    for offset, refused in ((position, True), (probe.physical_offset, False)):
        fields = {**usual, "offset": str(offset)}
        asked = rig.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, caller=other)
        if refused:
            with pytest.raises(RemotingRefusedError, match="no message"):
                await asked
        else:
            assert await asked is not None
    assert [each.body for each in await rig.records("%DLQ%g")] == [b"~" * head]


async def test_a_message_is_called_back(rig: SendRig) -> None:
    answer = await rig.send("T", b"x", properties=KEY + "TIMER_DELAY_SEC\x013600\x02")
    handle = answer.fields["recallHandle"]
    fields = {"topic": "T", "recallHandle": handle, "producerGroup": "g"}
    recalled = await rig.ask(RequestCode.RECALL_MESSAGE, fields)
    assert recalled is not None
    assert recalled.fields == {"msgId": "AB"}
    assert len(await rig.records("rmq_sys_wheel_timer")) == 2
    for wrong in ({"topic": "U"}, {"recallHandle": "nonsense"}, {"recallHandle": ""}):
        with pytest.raises(RemotingRefusedError):
            await rig.ask(RequestCode.RECALL_MESSAGE, {**fields, **wrong})
