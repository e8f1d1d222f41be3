"""A commit that is refused the second time, and had been done the first time."""

import asyncio
from typing import Any, cast

import pytest

from tandemlog.errors import FencedMemberError, TransactionDecidedError
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
