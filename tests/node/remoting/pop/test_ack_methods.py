"""What consumers say of popped messages: done, more time, another try; with a handle or none."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.popping_node import (
    ACK,
    BATCH_ACK,
    CHANGE,
    GROUP,
    TOPIC,
    Popper,
    connected,
    popping_node,
    receipt_of,
)
from tandemlog.format.lease.handle import decode_handles, encode_handles

NO_MESSAGE, ILLEGAL, NO_TOPIC, NONE_FOUND = 208, 29, 17, 210


@pytest.fixture
async def popper(tmp_path: Path) -> AsyncIterator[Popper]:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        yield popper


def without_handle(receipt: str) -> str:
    """As a client makes one by itself."""
    return " ".join(receipt.split(" ")[:8])


async def test_an_acknowledgement_counts_once_and_for_ever(tmp_path: Path) -> None:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await popper.put(b"a", b"b")
        first, second = map(receipt_of, await popper.popped())
        assert (await popper.say(ACK, first)).code == 0
        assert (await popper.say(ACK, first)).code == 0
        await node.work.sync(GROUP)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        # the next master knows the message by the handle, and not by the number of a delivery
        assert (await popper.say(ACK, without_handle(second))).code == NO_MESSAGE
        assert (await popper.say(ACK, second)).code == 0
        assert (await popper.pop()).code == NONE_FOUND


async def test_a_receipt_is_void_once_another_consumer_has_the_message(popper: Popper) -> None:
    await popper.put(b"a")
    [first] = await popper.popped()
    await popper.say(CHANGE, receipt_of(first), invisibleTime=0)
    [second] = await popper.popped()
    for receipt in (receipt_of(first), without_handle(receipt_of(first))):
        refused = await popper.say(ACK, receipt)
        assert (refused.code, "delivered again" in refused.remark) == (NO_MESSAGE, True)
    assert (await popper.say(ACK, without_handle(receipt_of(second)))).code == 0


async def test_a_message_stays_invisible_for_longer(popper: Popper) -> None:
    await popper.put(b"a")
    [found] = await popper.popped()
    changed = await popper.say(CHANGE, receipt_of(found), invisibleTime=120_000)
    assert (changed.code, changed.fields["invisibleTime"]) == (0, "120000")
    # a client makes its next receipt of the answer
    parts = without_handle(receipt_of(found)).split(" ")
    parts[1], parts[3] = changed.fields["popTime"], changed.fields["reviveQid"]
    assert (await popper.say(CHANGE, " ".join(parts), invisibleTime=60_000)).code == 0
    assert (await popper.say(ACK, " ".join(parts))).code == 0
    # of a message that is done there is no time to change, and nothing to be afraid of
    late = await popper.say(CHANGE, receipt_of(found), invisibleTime=60_000)
    assert late.code == 0


async def test_a_refused_change_has_the_fields_that_a_client_reads(popper: Popper) -> None:
    await popper.put(b"a")
    [first] = await popper.popped()
    await popper.say(CHANGE, receipt_of(first), invisibleTime=0)
    await popper.popped()
    refused = await popper.say(CHANGE, receipt_of(first), invisibleTime=60_000)
    assert refused.code == NO_MESSAGE
    assert {"popTime", "invisibleTime", "reviveQid"} <= refused.fields.keys()


def batch(receipt: str, *bits: int, **fields: object) -> dict[str, object]:
    parts = receipt.split(" ")
    number = sum(1 << each for each in bits)
    row = {
        "c": GROUP,
        "t": TOPIC,
        "r": parts[4],
        "so": int(parts[0]),
        "q": int(parts[6]),
        "rq": int(parts[3]),
        "pt": int(parts[1]),
        "it": int(parts[2]),
        "b": base64.b64encode(number.to_bytes(8, "little")).decode(),
    }
    return {**row, **fields}


async def test_many_are_acknowledged_by_bits(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    await popper.put(b"d", queue_id=2)
    found = {each.body: receipt_of(each) for each in await popper.popped()}
    acks = [batch(found[b"a"], 0, 2), batch(found[b"d"], 0)]
    assert (await popper.ask(BATCH_ACK, {"brokerName": "b", "acks": acks})).code == 0
    work = await popper.node.work.describe(GROUP)
    assert work.leased == 1
    # one that was not popped: the others count
    refused = await popper.ask(BATCH_ACK, {"acks": [batch(found[b"a"], 1, 3)]})
    assert refused.code == NO_MESSAGE
    assert (await popper.node.work.describe(GROUP)).leased == 0
    assert (await popper.ask(BATCH_ACK, {"acks": []})).code == NO_MESSAGE
    none = batch(found[b"a"], 0, t="none")
    assert (await popper.ask(BATCH_ACK, {"acks": [none]})).code == NO_TOPIC


async def test_a_handle_is_for_the_message_that_the_request_names(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    first, second = map(receipt_of, await popper.popped())
    mixed = " ".join([*first.split(" ")[:8], second.split(" ")[8]])
    assert (await popper.say(ACK, mixed)).code == ILLEGAL
    handle = decode_handles(first.split(" ")[8].encode()).copy()
    handle["log_offset"] += 1
    forged = " ".join([*first.split(" ")[:8], encode_handles(handle).decode()])
    assert (await popper.say(ACK, forged)).code == NO_MESSAGE
    assert (await popper.say(ACK, first, topic="none")).code == NO_TOPIC
    assert (await popper.say(ACK, first, offset=1)).code != 0
    assert (await popper.node.work.describe(GROUP)).leased == 2
