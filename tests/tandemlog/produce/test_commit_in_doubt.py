"""A commit that is refused the second time, and had been done the first time; and messages that are
sent while it waits."""

import asyncio
from typing import Any, cast

import pytest

from tandemlog.errors import FencedMemberError, TransactionDecidedError, TransactionEndedError
from tandemlog.message import Message
from tandemlog.produce.transactions import AsyncTransaction, TransactionState


class RefusingState(TransactionState):
    """Of a master that refuses the commit, and answers a rollback as it is told."""

    def __init__(self, *, committed: bool) -> None:
        super().__init__(cast("Any", None), "g", checked=False)
        self._committed = committed
        self.begin()

    async def end(self, *, commits: bool, messages: int) -> Any:
        self._ending = True
        if commits:
            raise FencedMemberError("another member has the queues")
        if self._committed:
            raise TransactionDecidedError("it is committed")
        return None


async def send(*_: Any) -> Any:
    return asyncio.get_running_loop().create_future()


async def test_what_is_committed_is_not_reported_as_refused() -> None:
    transaction = AsyncTransaction(RefusingState(committed=True), send, ())
    result = await transaction.commit()
    assert result.committed
    assert result.transaction_id == transaction.transaction_id


async def test_what_is_rolled_back_is_refused() -> None:
    with pytest.raises(FencedMemberError):
        await AsyncTransaction(RefusingState(committed=False), send, ()).commit()


class Counting(TransactionState):
    """Of a master that takes every commit; it notes how many messages that names."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None), "g", checked=False)
        self.counted: list[int] = []
        self.begin()

    async def end(self, *, commits: bool, messages: int) -> Any:
        self._ending = True
        self.counted.append(messages)


async def test_a_message_that_a_commit_does_not_count_is_not_accepted() -> None:
    """It would be rolled back by the master as one that came too late, and nobody would hear."""
    state, goes_on = Counting(), asyncio.Event()
    stored: list[asyncio.Future[Any]] = []

    async def sending(message: Message, _: object) -> Any:
        if message.body == b"waits for room":
            await goes_on.wait()
        stored.append(asyncio.get_running_loop().create_future())
        return stored[-1]

    transaction = AsyncTransaction(state, sending, ())
    await transaction.send(Message("orders", b"first"))
    waits = asyncio.create_task(transaction.send(Message("orders", b"waits for room")))
    await asyncio.sleep(0)
    committing = asyncio.create_task(transaction.commit())
    await asyncio.sleep(0)
    with pytest.raises(TransactionEndedError):
        await transaction.send(Message("orders", b"behind the commit"))
    goes_on.set()
    with pytest.raises(TransactionEndedError):
        await waits
    stored[0].set_result(None)
    await committing
    assert state.counted == [1]


async def test_a_commit_that_is_cancelled_while_it_waits_is_rolled_back() -> None:
    state, futures = Counting(), [asyncio.get_running_loop().create_future()]

    async def sending(*_: Any) -> Any:
        return futures[0]

    transaction = AsyncTransaction(state, sending, (Message("orders", b"first"),))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), transaction:
            await transaction.commit()
    assert state.counted == [-1]
