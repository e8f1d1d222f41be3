"""Transactions on a node: rights, refusals, what is given up, and what a change of master keeps."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.batches import batch_of
from fakes.halves import half_put
from fakes.secured_node import access_text, bearer, channel, running, settings, until
from tandemlog.format.constants import BROKER_TRANSACTIONS, HALF_TOPIC, UNDECIDED_TOPIC
from tandemlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
    transaction_pb2,
    transaction_pb2_grpc,
)
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.sections import TransactionsSection

COMMITTED, ROLLED_BACK = transaction_pb2.COMMITTED, transaction_pb2.ROLLED_BACK


def half_request(name: str, transaction_id: str, topic: str = "T") -> broker_pb2.AppendRequest:
    batch = batch_of([half_put(name, transaction_id, topic=topic)])
    return broker_pb2.AppendRequest(
        request_id=1,
        topics=batch.topics,
        queue_topics=batch.queue_topics.tolist(),
        queue_ids=batch.queue_ids.tolist(),
        records=bytes(batch.records),
        sizes=batch.sizes.astype("<u4").tobytes(),
        queue_indexes=batch.queue_indexes.astype("<u2").tobytes(),
    )


class Calls:
    """A node, and one caller's calls of it."""

    def __init__(self, node: Node, on: Any, who: str = "") -> None:
        self.node = node
        self._metadata = bearer(who) if who else ()
        self._broker = broker_pb2_grpc.BrokerStub(on)
        self._admin = admin_pb2_grpc.AdminStub(on)
        self._transactions = transaction_pb2_grpc.TransactionsStub(on)

    async def create(self, *topics: str) -> None:
        for topic in topics:
            request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
            await self._admin.CreateTopic(request, metadata=self._metadata)

    async def put(self, name: str, transaction_id: str, topic: str = "T") -> Any:
        call = self._broker.Append(
            iter([half_request(name, transaction_id, topic)]), metadata=self._metadata
        )
        return await anext(aiter(call))

    async def end(self, transaction_id: str, outcome: Any = COMMITTED, **fields: Any) -> Any:
        request = transaction_pb2.EndTransactionRequest(
            transaction_id=transaction_id, outcome=outcome, **{"messages": -1, **fields}
        )
        return await self._transactions.EndTransaction(request, metadata=self._metadata)

    async def listed(self) -> list[str]:
        answer = await self._transactions.ListTransactions(
            transaction_pb2.ListTransactionsRequest(), metadata=self._metadata
        )
        return [each.transaction_id for each in answer.transactions]

    async def poll(self, group: str, wait_ms: int = 0) -> Any:
        request = transaction_pb2.PollTransactionChecksRequest(
            producer_group=group, wait_ms=wait_ms
        )
        return await self._transactions.PollTransactionChecks(request, metadata=self._metadata)


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    async with running(settings(tmp_path)) as node, channel(node) as on:
        made = Calls(node, on)
        await made.create("T")
        yield made


async def test_a_transaction_needs_the_rights_of_its_messages(tmp_path: Path) -> None:
    access = access_text(
        op={"admin": True}, writer={"write": ["T"]}, other={"write": ["U"], "read": ["U"]}
    )
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        op, writer, other = (Calls(node, on, who) for who in ("op", "writer", "other"))
        await op.create("T", "U")
        refused = await other.put("a", "tx")
        assert refused.error.code == common_pb2.PERMISSION_DENIED
        assert "'T'" in refused.error.message
        assert not (await writer.put("a", "tx")).error.code
        assert (await other.end("tx")).error.code == common_pb2.PERMISSION_DENIED
        assert await other.listed() == []
        assert await writer.listed() == ["tx"]
        with node.store.transactions.lock:
            node.transactions.limits = TransactionsSection(check_after_ms=100)
        assert [
            each.transaction_id for each in (await writer.poll("producers", 20_000)).checks
        ] == ["tx"]
        assert not (await writer.end("tx", ROLLED_BACK)).error.code


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"transaction_id": ""}, "transaction_id"),
        ({"transaction_id": "x" * 129}, "transaction_id"),
        ({"transaction_id": "x", "outcome": 0}, "outcome"),
    ],
)
async def test_requests_that_say_nothing(calls: Calls, fields: Any, field: str) -> None:
    answer = await calls.end(**fields)
    assert (answer.error.code, answer.error.field) == (common_pb2.INVALID_ARGUMENT, field)


async def test_a_half_that_no_client_may_put(calls: Calls) -> None:
    missing = await calls.put("a", "tx", "missing")
    assert missing.error.code == common_pb2.UNKNOWN_TOPIC
    request = half_request("a", "tx")
    request.records = request.records.replace(b"TRAN_MSG\x01true", b"TRAN_MSG\x01tru!")
    answer = await anext(aiter(calls._broker.Append(iter([request]))))
    assert answer.error.code == common_pb2.BAD_RECORD
    assert "TRAN_MSG must be true" in answer.error.message


async def test_refusals_say_what_is_wrong(calls: Calls) -> None:
    await calls.put("a", "tx")
    few = await calls.end("tx", messages=2)
    assert few.error.code == common_pb2.UNKNOWN_TRANSACTION
    assert not (await calls.end("tx", messages=1)).error.code
    assert (await calls.end("tx", messages=1)).again
    other = await calls.end("tx", ROLLED_BACK)
    assert other.error.code == common_pb2.TRANSACTION_DECIDED
    assert other.error.master_epoch, "the word of a master that leads"
    late = await calls.put("b", "tx")
    assert late.error.code == common_pb2.TRANSACTION_DECIDED


async def test_what_no_producer_decides_is_given_up(calls: Calls) -> None:
    await calls.put("a", "tx")
    work = calls.node.transactions
    work.limits = TransactionsSection(check_after_ms=100, check_interval_ms=100, max_checks=2)
    transactions = calls.node.store.transactions
    await until(lambda: transactions.outcomes == {"tx": False} and not transactions.halves)
    await until(lambda: work.desk.counts.given_up == 1)
    assert work.numbers()["transactions_checks_total"] == 2
    queue = calls.node.store.queue_table.get(UNDECIDED_TOPIC, 0)
    assert calls.node.store.queues.max_offset(queue) == 1
    offsets = calls.node.store.consumer_offsets
    await until(lambda: offsets.offset(BROKER_TRANSACTIONS, HALF_TOPIC, 0) == 1)


async def test_what_is_kept_waits_for_an_operator(calls: Calls) -> None:
    await calls.put("a", "tx")
    calls.node.transactions.limits = TransactionsSection(
        check_after_ms=100, check_interval_ms=100, max_checks=1, undecided="keep"
    )
    await until(lambda: calls.node.transactions.board.checks("tx") == 1)
    await asyncio.sleep(0)
    answer = await calls._transactions.ListTransactions(transaction_pb2.ListTransactionsRequest())
    assert [(each.transaction_id, each.kept) for each in answer.transactions] == [("tx", True)]
    decided = await calls._transactions.DecideTransaction(
        transaction_pb2.DecideTransactionRequest(transaction_id="tx", outcome=COMMITTED)
    )
    assert decided.transaction.messages == 1
    assert await calls.listed() == []


async def test_the_store_s_own_group_is_not_set_by_hand(calls: Calls) -> None:
    await calls.put("a", "tx")
    position = broker_pb2.QueuePosition(topic=HALF_TOPIC, queue_id=0, queue_offset=1)
    answer = await calls._broker.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(group=BROKER_TRANSACTIONS, offsets=[position])
    )
    assert answer.error.code == common_pb2.INVALID_ARGUMENT
    assert "the store's own" in answer.error.message


async def test_a_waiting_poll_ends_with_the_term(calls: Calls) -> None:
    waiting = asyncio.create_task(calls.poll("producers", 60_000))
    await until(lambda: bool(calls.node.transactions._polls))
    await calls.node.transactions.end()
    answer = await waiting
    assert not answer.checks


async def test_a_check_is_left_to_those_who_may_answer(tmp_path: Path) -> None:
    access = access_text(op={"admin": True}, writer={"write": ["T"]}, other={"write": ["U"]})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        op, writer, other = (Calls(node, on, who) for who in ("op", "writer", "other"))
        await op.create("T", "U")
        node.transactions.limits = TransactionsSection(check_after_ms=100)
        asks = asyncio.create_task(other.poll("producers", 20_000))
        await writer.put("a", "tx")
        await until(lambda: node.transactions.board.waits("producers") or asks.done())
        (check,) = (await writer.poll("producers", 5_000)).checks
        assert check.transaction_id == "tx"
        await writer.end("tx", ROLLED_BACK)
        asks.cancel()


async def test_a_repeated_commit_is_answered_whatever_became_of_its_offsets(calls: Calls) -> None:
    await calls.put("a", "tx")
    offsets = [broker_pb2.CommitOffsetsRequest(group="g")]
    offsets[0].offsets.add(topic="T", queue_id=0, queue_offset=0)
    assert not (await calls.end("tx", offsets=offsets)).error.code
    await until(lambda: "tx" in calls.node.store.transactions.outcomes)
    offsets[0].offsets.add(topic="gone", queue_id=0, queue_offset=0)
    again = await calls.end("tx", offsets=offsets)
    assert again.again, again.error.message


async def test_a_rollback_takes_what_is_in_the_log_and_not_acknowledged(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = calls.node.store
    begin = store.log.wrote.value
    with monkeypatch.context() as patched:
        patched.setattr(store.confirmed, "advance", lambda _: None)
        put = asyncio.create_task(calls.put("a", "tx"))
        await until(lambda: store.log.wrote.value > begin)
        end = asyncio.create_task(calls.end("tx", ROLLED_BACK))
        await asyncio.wait([end], timeout=0.2)
    store.confirmed.advance(store.log.wrote.value)
    assert not (await end).error.code
    await put
    await until(lambda: store.transactions.outcomes.get("tx") is False)
    assert not store.transactions.halves


async def test_offsets_of_a_transaction_are_within_the_bound(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls.node.store.consumer_offsets, "_max_rows", 1)
    await calls.put("a", "tx")
    rows = broker_pb2.CommitOffsetsRequest(group="g")
    for queue_id in range(2):
        rows.offsets.add(topic="T", queue_id=queue_id, queue_offset=0)
    refused = await calls.end("tx", offsets=[rows])
    assert "max_offset_rows is 1" in refused.error.message
    del rows.offsets[1:]
    assert not (await calls.end("tx", offsets=[rows])).error.code
