"""Sends of RocketMQ's clients: what is stored, what is answered, and what is refused."""

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.inner_node import until
from fakes.send_rig import FACTS, SendRig, send_rig
from tandemlog.format.constants import HALF_TOPIC
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.record.message_id import decode_offset_id
from tandemlog.format.transaction.half import half_properties
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.node.remoting.sends.second_attempts import SecondAttempts
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.stored_message import StoredMessage
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG
from tandemlog_server.storage.metadata.topics import TopicConfig, new_group


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SendRig]:
    async with send_rig(tmp_path, "T", "U") as rig:
        yield rig


def text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def batch_body(*messages: tuple[bytes, bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties in messages
    )


async def refused(rig: SendRig, topic: str, **fields: str) -> tuple[int, str]:
    with pytest.raises(RemotingRefusedError) as refusal:
        await rig.send(topic, b"x", **{"properties": "", **fields})
    return refusal.value.code, str(refusal.value)


async def test_a_message_is_stored_as_by_a_broker(rig: SendRig) -> None:
    properties = text(WAIT="true", TAGS="pay", UNIQ_KEY="AB", n="0", REAL_TOPIC="x")
    answer = await rig.send("T", b"body", properties=properties, e="1", h="-7", f="1", j="3")
    (record,) = await rig.records("T", 1)
    assert record.properties_raw.decode() == text(
        MSG_REGION="DefaultRegion", UNIQ_KEY="AB", CLUSTER=FACTS.cluster, TAGS="pay", WAIT="true",
        TRACE_ON="true", n="0",
    )  # fmt: skip
    assert (record.body, record.flag, record.sys_flag) == (b"body", -7, 1)
    assert (record.reconsume_times, record.born_timestamp) == (3, 1_700_000_000_000)
    assert record.born_host == "10.0.0.7:51234"
    assert answer.code == 0
    fields = dict(answer.fields)
    assert decode_offset_id(fields.pop("msgId")) == (record.store_host, record.physical_offset)
    assert fields == {
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "AB",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_requests_of_one_turn_are_one_append(rig: SendRig) -> None:
    before = rig.node.store.log.wrote.value
    puts = []
    put = rig.node.store.put
    rig.node.store.put = lambda batch, **how: puts.append(batch) or put(batch, **how)  # type: ignore
    answers = await asyncio.gather(
        *(rig.send("TU"[number % 2], b"%d" % number, e=str(number % 3 % 2)) for number in range(30))
    )
    assert [batch.count for batch in puts] == [30]
    offsets = [decode_offset_id(each.fields["msgId"])[1] for each in answers]
    assert offsets[0] == before
    assert offsets == sorted(offsets)
    for number, answer in enumerate(answers):
        record = (await rig.records("TU"[number % 2], number % 3 % 2))[
            int(answer.fields["queueOffset"])
        ]
        assert (record.body, record.physical_offset) == (b"%d" % number, offsets[number])


async def test_a_refusal_of_the_store_is_for_one_request(rig: SendRig) -> None:
    """Here for a topic that is deleted when the batch comes to the store."""
    real = rig.node.store.topics.table
    gone = {name: each for name, each in real.items() if name != "U"}

    async def delete() -> None:
        rig.node.store.topics._publish(gone)
        rig.node.store.topics._changed()

    ok, failed, _, again = await asyncio.gather(
        rig.send("T", b"1"), rig.send("U"), delete(), rig.send("T", b"2"), return_exceptions=True
    )
    assert isinstance(failed, Exception)
    assert "U" in str(failed)
    assert not isinstance(ok, BaseException)
    assert not isinstance(again, BaseException)
    assert [each.body for each in await rig.records("T")] == [b"1", b"2"]


async def test_a_batch_is_a_record_for_each_message(rig: SendRig) -> None:
    body = batch_body((b"one", b"UNIQ_KEY\x01A"), (b"two", b"UNIQ_KEY\x01B\x02"))
    fields = {"b": "T", "e": "1", "i": text(WAIT="true"), "m": "true"}
    answer = await rig.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)
    assert answer is not None
    records = await rig.records("T", 1)
    assert [each.body for each in records] == [b"one", b"two"]
    assert [each.properties_raw for each in records] == [b"UNIQ_KEY\x01A\x02", b"UNIQ_KEY\x01B\x02"]
    ids = answer.fields["msgId"].split(",")
    assert [decode_offset_id(each)[1] for each in ids] == [e.physical_offset for e in records]
    assert answer.fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    "fields",
    [{"b": "%RETRY%g"}, {"b": "T", "i": text(DELAY="1")}, {"b": "T", "i": text(TRAN_MSG="true")}],
)
async def test_a_batch_that_no_broker_takes_is_refused(
    rig: SendRig, fields: dict[str, str]
) -> None:
    with pytest.raises(RemotingRefusedError):
        await rig.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch_body((b"x", b"")))


async def test_long_names_and_oneway(rig: SendRig) -> None:
    fields = {"topic": "T", "queueId": "0"}
    assert await rig.ask(RequestCode.SEND_MESSAGE, fields, b"x", flag=ONEWAY_FLAG) is None
    (record,) = await rig.records("T")
    assert record.uniq_key == "KEY1"


async def test_any_queue(rig: SendRig) -> None:
    answers = [await rig.send("T", e="-1") for _ in range(4)]
    assert [each.fields["queueId"] for each in answers] == ["0", "1", "0", "1"]


async def test_an_unknown_topic_is_made_after_its_model(rig: SendRig) -> None:
    await asyncio.gather(*(rig.send("new", e="3") for _ in range(3)))
    topic = rig.node.store.topics.get("new")
    assert topic is not None
    assert topic.write_queues == 4
    assert (await refused(rig, "newer", c="T"))[0] == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("T", {"e": "2"}, ResponseCode.INVALID_PARAMETER),
        ("T", {"e": "x"}, ResponseCode.SYSTEM_ERROR),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ("rmq_sys_wheel_timer", {}, ResponseCode.NO_PERMISSION),
        ("a b", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"i": text(DELAY="x")}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"i": text(n="9" * 40_000)}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"i": text(TRAN_MSG="true")}, ResponseCode.NO_PERMISSION),
        ("T", {"i": text(n="\ud800")}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_what_cannot_be_stored_is_refused(
    rig: SendRig, topic: str, fields: dict[str, str], code: int
) -> None:
    assert (await refused(rig, topic, **fields))[0] == code
    assert rig.node.store.log.wrote.value == 0


async def test_clients_write_what_became_of_their_messages(rig: SendRig) -> None:
    answer = await rig.send("RMQ_SYS_TRACE_TOPIC", b"Pub")
    assert answer.code == 0, answer.remark
    assert [each.body for each in await rig.records("RMQ_SYS_TRACE_TOPIC")] == [b"Pub"]


async def test_a_large_body_and_a_topic_to_read_are_refused(rig: SendRig) -> None:
    with pytest.raises(RemotingRefusedError, match="limit"):
        await rig.send("T", bytes(100_001))
    rig.node.store.create_topic(TopicConfig("read", perm=4))
    assert (await refused(rig, "read"))[0] == ResponseCode.NO_PERMISSION


async def test_bits_that_a_store_sets_are_not_taken(rig: SendRig) -> None:
    await rig.send("T", f=str(0x0C | 0xC0 | 0x30 | 1))
    (record,) = await rig.records("T")
    assert record.sys_flag == 1


async def test_a_level_and_a_time_wait_where_a_broker_has_them(rig: SendRig) -> None:
    await rig.send("T", b"level", properties=text(DELAY="18"), e="1")
    (record,) = await rig.records("SCHEDULE_TOPIC_XXXX", 17)
    assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == ("T", "1")
    answer = await rig.send("T", b"time", properties=text(TIMER_DELAY_SEC="3600", UNIQ_KEY="AB"))
    (record,) = await rig.records("rmq_sys_wheel_timer")
    handle = decode_handle(answer.fields["recallHandle"])
    assert (handle.topic, handle.broker, handle.key) == ("T", "broker-a", "AB")
    assert handle.time_ms == int(record.properties["TIMER_OUT_MS"]) + 1
    assert handle.log_offset == record.physical_offset


async def test_a_message_comes_after_its_time(rig: SendRig) -> None:
    await rig.send("T", b"later", properties=text(TIMER_DELAY_MS="30"))
    store = rig.node.store

    def has_come() -> bool:
        dense = store.queue_table.get("T", 0)
        return dense >= 0 and store.queues.max_offset(dense) > 0

    await until(has_come)
    (record,) = await rig.records("T")
    assert record.body == b"later"


async def test_a_time_that_is_over_makes_an_ordinary_message(rig: SendRig) -> None:
    await rig.send("T", properties=text(TIMER_DELIVER_MS="1", DELAY="0", TIMER_OUT_MS="7"))
    (record,) = await rig.records("T")
    assert set(record.properties) == {"MSG_REGION", "UNIQ_KEY", "CLUSTER", "TRACE_ON"}


async def test_retries_that_are_used_up_are_a_dead_letter(rig: SendRig) -> None:
    await rig.send("%RETRY%g", b"again", j="16", properties=text(DELAY="3"))
    assert len(await rig.records("SCHEDULE_TOPIC_XXXX", 2)) == 1
    await rig.send("%RETRY%g", b"dead", j="17", properties=text(DELAY="3"))
    await rig.send("%RETRY%g", b"own limit", j="3", l="2")
    dead = await rig.records("%DLQ%g")
    assert [each.body for each in dead] == [b"dead", b"own limit"]
    rig.node.store.groups.take_rows({"g": {**new_group("g"), "retryMaxTimes": 1}}, (), 1)
    await rig.send("%RETRY%g", b"limit of the group", j="2")
    assert len(await rig.records("%DLQ%g")) == 3


async def test_a_half_is_stored_in_place_of_its_message(tmp_path: Path) -> None:
    def make_half(message: StoredMessage, *, producer_group: str, serial: int) -> None:
        key = message.properties["UNIQ_KEY"]
        message.properties |= half_properties(
            message.topic, message.queue_id, group=producer_group, key=key, transaction_id=key
        )
        message.topic, message.queue_id = HALF_TOPIC, 0

    async with send_rig(tmp_path, "T", make_half=make_half) as rig:
        answer = await rig.send("T", properties=text(TRAN_MSG="true", UNIQ_KEY="AB"), f="4", e="1")
        (half,) = await rig.records(HALF_TOPIC)
        assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == ("T", "1")
        assert answer.fields["queueId"] == "1"
        assert answer.fields["transactionId"] == "AB"


async def test_a_second_attempt_has_the_answer_of_what_the_last_master_stored(rig: SendRig) -> None:
    properties = text(UNIQ_KEY="AB")
    first = await rig.send("T", b"body", properties=properties, e="1")
    await rig.records("T", 1)
    store = rig.node.store
    rig.sends._attempts = attempts = SecondAttempts(store, rig.node.terms, lambda: 0.0)
    attempts._role, attempts._until = rig.node.terms.role, 1.0
    attempts._begin = store.log.wrote.value
    again = await rig.send("T", b"body", properties=properties, e="0", g="1700000000050")
    assert again.fields == first.fields
    assert (len(await rig.records("T", 0)), len(await rig.records("T", 1))) == (0, 1)
    await rig.send("T", b"other", properties=properties, e="0", g="1700000000050")
    assert len(await rig.records("T", 0)) == 1
