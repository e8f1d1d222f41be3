"""Transactions of a producer: messages, and offsets of groups, that count together or not at all.

    async with producer.transaction(Message("orders", b"...")) as t:    halves, not read yet
        await t.send(Message("invoices", b"..."))
        t.commit_offsets(stream)
    left normally      ─▶ t.commit()       the master decides: one record, one outcome
    left by an error   ─▶ t.rollback()

The outcome of a commit that got no answer is asked for again, of the master of that moment: the
transaction is known by its id, and has one outcome. Only where no master answers in time, or none
knows it any more, OutcomeUnknownError is raised.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from ..cluster.connection import Connection
from ..cluster.node import Node
from ..errors import (
    InvalidArgumentError,
    NodeUnavailableError,
    NotInSyncError,
    OutcomeUnknownError,
    TandemlogError,
    TransactionAbortedError,
    TransactionDecidedError,
    TransactionEndedError,
    UnknownTransactionError,
)
from ..format.constants import group_fault
from ..in_transaction import InTransaction
from ..message import Message, SendResult
from ..v1 import broker_pb2, transaction_pb2

logger = logging.getLogger(__name__)

FutureT = TypeVar("FutureT")

CALL_MARGIN_MS: Final = 1_000
_NO_OFFSETS: Final = "commit_offsets needs a stream, or offsets by (topic, queue id) and group="


class OffsetSource(Protocol):
    """A stream of a group: see AsyncStream and Stream."""

    def transaction_offsets(self, what: Any = None) -> broker_pb2.CommitOffsetsRequest:
        """What a commit of `what` would save, in whose name; None: all that was delivered."""
        ...


Offsets = OffsetSource | Mapping[tuple[str, int], int]
"""A stream, or queue offsets to consume next by (topic, queue id)."""


@dataclass(frozen=True, slots=True)
class CommittedMessage:
    """Where a message of a committed transaction is."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction has ended. `messages` are those of a commit, in the order in which they
    were sent; fewer, or none, if the master did not say, as after a repeated request."""

    transaction_id: str
    committed: bool
    messages: tuple[CommittedMessage, ...] = ()


class TransactionState:
    """What both faces of a transaction share: what it has, and how it ends. `checked`: its producer
    answers checks."""

    def __init__(self, connection: Connection, group: str, *, checked: bool) -> None:
        self.how = InTransaction(os.urandom(16).hex(), group)
        self.result: TransactionResult | None = None
        self._connection = connection
        self._checked = checked
        self._offsets: list[broker_pb2.CommitOffsetsRequest] = []
        self._begun = False
        self._ending = False
        self._lock = threading.Lock()  # of what was sent
        self._takes = True
        self._sent: list[Any] = []

    @property
    def transaction_id(self) -> str:
        return self.how.transaction_id

    def begin(self) -> None:
        """Its block is entered, and its first messages are sent."""
        self._begun = True

    def check_open(self) -> None:
        """Raises TransactionEndedError, and InvalidArgumentError for one that was not entered: its
        first messages would be missing."""
        if not self._begun:
            raise InvalidArgumentError(
                "a transaction begins where its block is entered: `with "
                "producer.transaction(...) as t:`, or `async with`",
                field="transaction",
            )
        if self._ending:
            raise TransactionEndedError(f"transaction {self.transaction_id} has ended")

    @property
    def is_open(self) -> bool:
        return not self._ending

    def check_takes(self) -> None:
        """Before a message is sent. Raises as `check_open`, also once an end has begun."""
        self.check_open()
        if not self._takes:
            raise TransactionEndedError(f"transaction {self.transaction_id} is about to end")

    def sent(self, future: FutureT) -> FutureT:
        """A message was sent. Raises TransactionEndedError if an end has begun meanwhile, which
        does not count it: it is not part of the transaction."""
        with self._lock:
            self.check_takes()
            self._sent.append(future)
        return future

    def begin_end(self) -> list[Any]:
        """The futures of all messages that the end is about: none is taken from now on. Raises as
        `check_open`."""
        self.check_open()
        with self._lock:
            self._takes = False
            return list(self._sent)

    def add_offsets(self, offsets: Offsets, what: Any, group: str | None) -> None:
        """Raises TransactionEndedError, InvalidArgumentError."""
        if self._checked:
            raise InvalidArgumentError(
                "a producer with a transaction_checker cannot commit offsets in its transactions: "
                "a check would commit the messages without them; use another producer",
                field="offsets",
            )
        self.check_open()
        if isinstance(offsets, Mapping):
            fault = _NO_OFFSETS if group is None else group_fault(group, new=False)
            if fault is not None:
                raise InvalidArgumentError(f"group: {fault}", field="group")
            request = broker_pb2.CommitOffsetsRequest(group=group or "")
            for (topic, queue_id), offset in offsets.items():
                request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=offset)
        elif hasattr(offsets, "transaction_offsets") and group is None:
            request = offsets.transaction_offsets(what)
        else:
            raise InvalidArgumentError(_NO_OFFSETS, field="offsets")
        for each in self._offsets:
            if each.group == request.group:
                _merge(each, request)
                return
        self._offsets.append(request)

    async def end(self, *, commits: bool, messages: int) -> TransactionResult:
        """The outcome, confirmed. Raises OutcomeUnknownError, and why it was refused."""
        self._ending = True
        request = transaction_pb2.EndTransactionRequest(
            transaction_id=self.transaction_id,
            outcome=transaction_pb2.COMMITTED if commits else transaction_pb2.ROLLED_BACK,
            messages=messages if commits else -1,
            offsets=self._offsets if commits else (),
        )
        answer = await end_transaction(self._connection, request)
        self.result = TransactionResult(
            self.transaction_id,
            commits,
            tuple(
                CommittedMessage(each.topic, each.queue_id, each.queue_offset, each.physical_offset)
                for each in answer.messages
            ),
        )
        return self.result

    def committed(self) -> TransactionResult:
        """It is, and the master did not say where its messages are."""
        self.result = TransactionResult(self.transaction_id, committed=True)
        return self.result


def _merge(into: broker_pb2.CommitOffsetsRequest, more: broker_pb2.CommitOffsetsRequest) -> None:
    """The newer offset of a queue counts."""
    newer = {(each.topic, each.queue_id) for each in more.offsets}
    kept = [each for each in into.offsets if (each.topic, each.queue_id) not in newer]
    rows = [*kept, *more.offsets]
    into.CopyFrom(more)
    del into.offsets[:]
    into.offsets.extend(rows)


async def end_transaction(
    connection: Connection, request: transaction_pb2.EndTransactionRequest
) -> transaction_pb2.EndTransactionResponse:
    """Asks the master until it has answered, or retry_timeout_ms is over. Raises
    OutcomeUnknownError if it may have been done without an answer."""
    timeout_ms = connection.options.request_timeout_ms + CALL_MARGIN_MS
    in_doubt = False

    async def once(node: Node) -> transaction_pb2.EndTransactionResponse:
        nonlocal in_doubt
        try:
            return await node.ask(node.transactions.EndTransaction, request, timeout_ms)
        except OutcomeUnknownError as error:
            in_doubt = True
            # the same question again tells
            raise NotInSyncError(str(error)) from error
        except NodeUnavailableError:
            in_doubt = True
            raise

    try:
        return await connection.on_master(once)
    except TandemlogError as error:
        if in_doubt and (error.retryable or isinstance(error, UnknownTransactionError)):
            raise OutcomeUnknownError(
                f"transaction {request.transaction_id} may have ended, and no master knows it: "
                f"{error}"
            ) from error
        raise


def aborted(error: BaseException) -> BaseException:
    """What a commit raises if this is why a message is not stored: whether it is may not be known,
    but the transaction's outcome is."""
    if isinstance(error, OutcomeUnknownError):
        return TransactionAbortedError(f"the transaction is rolled back: {error}")
    return error


class AsyncTransaction:
    """See AsyncProducer.transaction, and the module."""

    def __init__(
        self,
        state: TransactionState,
        send: Callable[[Message, InTransaction], Awaitable["asyncio.Future[SendResult]"]],
        first: Sequence[Message],
    ) -> None:
        self._state = state
        self._send = send
        self._first = first

    @property
    def transaction_id(self) -> str:
        """By which an operator finds it (`tandemlog transaction list`)."""
        return self._state.transaction_id

    async def __aenter__(self) -> Self:
        self._state.begin()
        try:
            for message in self._first:
                await self.send(message)
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._state.is_open:
            return
        if kind is None:
            await self.commit()
        else:
            await self._leave()

    async def _leave(self) -> None:
        """Roll back behind an error, which is the one that counts."""
        try:
            await self.rollback()
        except TandemlogError as error:
            logger.warning("transaction %s is not rolled back yet: %s", self.transaction_id, error)

    async def send(self, message: Message) -> "asyncio.Future[SendResult]":
        """A message more, which is read when the transaction is committed. The future says that it
        is stored; its position comes with the commit. Raises as AsyncProducer.send, and
        TransactionEndedError once an end has begun."""
        self._state.check_takes()
        return self._state.sent(await self._send(message, self._state.how))

    def commit_offsets(
        self, offsets: Offsets, what: Any = None, *, group: str | None = None
    ) -> None:
        """Offsets that count with the transaction: of a stream, all that it has delivered so far,
        or up to and with a message or batch `what`; or by (topic, queue id) of a group. Raises
        InvalidArgumentError, ClientClosedError for a stream without a group."""
        self._state.add_offsets(offsets, what, group)

    async def commit(self) -> TransactionResult:
        """All of it counts from now on. If a message could not be stored, or the master refuses the
        commit (FencedMemberError: another member has the queues), it is rolled back, and the error
        is raised. OutcomeUnknownError: no master has said which outcome it has."""
        sent = self._state.begin_end()
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        if errors:
            await self._end_refused()
            raise aborted(errors[0])
        try:
            return await self._state.end(commits=True, messages=len(sent))
        except (OutcomeUnknownError, TransactionDecidedError):
            raise
        except TandemlogError:
            if await self._end_refused():
                return self._state.committed()
            raise

    async def _end_refused(self) -> bool:
        """Roll back what was not committed; whether it is committed all the same, as the first of
        repeated requests may have done."""
        try:
            await self._state.end(commits=False, messages=-1)
        except TransactionDecidedError:
            return True
        except TandemlogError as error:
            logger.warning("transaction %s is not rolled back yet: %s", self.transaction_id, error)
        return False

    async def rollback(self) -> TransactionResult:
        """Nothing of it counts, ever."""
        # what is on its way would come too late, and would be asked about
        await asyncio.gather(*self._state.begin_end(), return_exceptions=True)
        return await self._state.end(commits=False, messages=-1)
