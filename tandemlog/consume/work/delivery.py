"""A message of a work queue in the hands of a program, and what the program says became of it.

    delivery.ack()                  done
    delivery.retry(after=30)        again, later
    delivery.reject("no such sku")  a dead letter
    delivery.extend(600)            more time, in one piece

The outcome is kept here and goes to the master with many others; `sync=True` waits until the
in-sync replicas have it. A delivery is a row of a batch and nothing more: the message is decoded
when it is asked for.

The two faces differ in how they wait: AsyncDelivery belongs to a task of the client's event loop,
Delivery to any other thread.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from ..received.received_message import ReceivedMessage
from .leased_batch import ACKED, LOST, REJECTED, RELEASED, RETRIED, TAKEN, LeasedBatch
from .signals import delay_in_ms, error_text
from .work_options import lease_in_ms


class LeasedMessage:
    """What both faces have."""

    __slots__ = ("_batch", "_message", "_row")

    def __init__(self, batch: LeasedBatch, row: int) -> None:
        self._batch = batch
        self._row = row
        self._message: ReceivedMessage | None = None

    def __del__(self) -> None:
        if self._batch.states[self._row] == TAKEN:
            self._batch.core.forgotten(self._batch, self._row)

    @property
    def message(self) -> ReceivedMessage:
        """All fields of the message."""
        message = self._message
        if message is None:
            message = self._message = self._batch.message(self._row)
        return message

    @property
    def body(self) -> bytes:
        """As the producer sent it. Raises BadRecordError for a damaged record."""
        return self.message.body

    @property
    def attempt(self) -> int:
        """1: the first delivery of this message to the group."""
        return self._batch.attempts[self._row]

    @property
    def last_error(self) -> str | None:
        """What an earlier attempt failed with, as far as it was told; None for the first one."""
        return self._batch.last_errors.get(self._row)

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def queue_id(self) -> int:
        return self._batch.queue_id

    @property
    def queue_offset(self) -> int:
        return self._batch.queue_offsets[self._row]

    @property
    def lost(self) -> bool:
        """Whether its lease has ended: the message comes again, and no outcome counts here."""
        return self._batch.states[self._row] == LOST

    @property
    def settled(self) -> bool:
        """Whether it has its outcome: acknowledged, given back, rejected or lost."""
        return self._batch.states[self._row] != TAKEN

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, attempt={self.attempt})"
        )


class AsyncDelivery(LeasedMessage):
    """A message that this consumer has until its lease ends; the lease is renewed meanwhile. Give
    it an outcome: one that is forgotten comes again when the lease ends.

    All outcomes raise LeaseLostError if the lease has ended, as far as that is known by then;
    otherwise it is logged and counted (`statistics().lost`) when the node has refused it, or raised
    with `sync=True`, which waits for the in-sync replicas. A second outcome raises
    DeliverySettledError."""

    __slots__ = ()

    async def ack(self, *, sync: bool = False) -> None:
        """The message is done, and does not come again."""
        await self._settle(ACKED, sync=sync)

    async def retry(
        self,
        *,
        after: float | timedelta | None = None,
        error: object = "",
        sync: bool = False,
    ) -> None:
        """It failed, and comes again after `after` seconds (None: by the group's policy), with
        `error`, a text or an exception, as its last error. It is a dead letter instead if this was
        the last attempt."""
        delay_ms = None if after is None else delay_in_ms(after)
        await self._settle(RETRIED, delay_ms, error_text(error), sync=sync)

    async def reject(self, error: object = "", *, sync: bool = False) -> None:
        """It is a dead letter now, with `error`, a text or an exception."""
        await self._settle(REJECTED, None, error_text(error), sync=sync)

    async def release(self, *, sync: bool = False) -> None:
        """It is given back as if it had not been received: it comes again at once, and this does
        not count as an attempt."""
        await self._settle(RELEASED, sync=sync)

    async def extend(self, seconds: float) -> None:
        """The lease lasts `seconds` from now on, also if this program cannot renew it meanwhile:
        its event loop is busy, for example. Waits for the node."""
        batch = self._batch
        await batch.core.extend((batch, self._row), lease_in_ms(seconds, "seconds"))

    async def _settle(
        self, state: int, delay_ms: int | None = None, error: str = "", *, sync: bool
    ) -> None:
        core, taken = self._batch.core, (self._batch, self._row)
        if not sync:
            core.settle(taken, state, delay_ms=delay_ms, error=error)
            if core.crowded:
                await core.room_to_settle()
            return
        confirmed = asyncio.get_running_loop().create_future()
        core.settle(taken, state, delay_ms=delay_ms, error=error, confirmed=confirmed)
        core.flush()
        await confirmed


class Delivery(LeasedMessage):
    """A message that this consumer has until its lease ends; the lease is renewed meanwhile. Give
    it an outcome, in any thread: one that is forgotten comes again when the lease ends.

    All outcomes raise LeaseLostError if the lease has ended, as far as that is known by then;
    otherwise it is logged and counted (`statistics().lost`) when the node has refused it, or raised
    with `sync=True`, which waits for the in-sync replicas. A second outcome raises
    DeliverySettledError."""

    __slots__ = ()

    def ack(self, *, sync: bool = False) -> None:
        """The message is done, and does not come again."""
        self._settle(ACKED, sync=sync)

    def retry(
        self,
        *,
        after: float | timedelta | None = None,
        error: object = "",
        sync: bool = False,
    ) -> None:
        """It failed, and comes again after `after` seconds (None: by the group's policy), with
        `error`, a text or an exception, as its last error. It is a dead letter instead if this was
        the last attempt."""
        delay_ms = None if after is None else delay_in_ms(after)
        self._settle(RETRIED, delay_ms, error_text(error), sync=sync)

    def reject(self, error: object = "", *, sync: bool = False) -> None:
        """It is a dead letter now, with `error`, a text or an exception."""
        self._settle(REJECTED, None, error_text(error), sync=sync)

    def release(self, *, sync: bool = False) -> None:
        """It is given back as if it had not been received: it comes again at once, and this does
        not count as an attempt."""
        self._settle(RELEASED, sync=sync)

    def extend(self, seconds: float) -> None:
        """The lease lasts `seconds` from now on, also if this program cannot renew it meanwhile:
        its event loop is busy, for example. Waits for the node."""
        batch = self._batch
        self._run(batch.core.extend((batch, self._row), lease_in_ms(seconds, "seconds")))

    def _settle(
        self, state: int, delay_ms: int | None = None, error: str = "", *, sync: bool
    ) -> None:
        core, taken = self._batch.core, (self._batch, self._row)
        if sync:
            self._run(AsyncDelivery._settle(self, state, delay_ms, error, sync=True))  # type: ignore[arg-type]
            return
        core.settle(taken, state, delay_ms=delay_ms, error=error, here=False)
        if core.crowded:
            self._run(core.room_to_settle())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        loop = self._batch.core.loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(work, loop).result()
