"""END_TRANSACTION (37): the decision of a classic client about its half message.

    37 ──▶ all that is confirmed is dispatched ──▶ the half at that place in the log, which fits the
           group, the queue offset and the id ──▶ rights ──▶ the engine's commit or rollback

A client names the half by its place, and the place is the same on every node: so it is found by
whichever master the request reaches. Where the fold has no such half any more, the record says
whose it was, and the outcome is known by that.

A client that has no answer to its send sends the half again, with the same UNIQ_KEY, and decides
only the one that was acknowledged. The others would be asked about and committed, and the message
would come twice. So a decision rolls back what the same group has sent before with that key,
SAME_SEND_MS at most, and has never named. One that was named was acknowledged: a program has sent
its Message object in several transactions, and each of them counts.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from tandemlog.format.constants import HALF_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record
from tandemlog.format.transaction.half import Half, half_of
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.transaction_wire import (
    EndTransaction,
    mismatch,
    read_end_transaction,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import OffsetOutOfRangeError, UnreadableError
from tandemlog_server.storage.folds.transaction_fold import OpenHalf
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import NoRecordError
from tandemlog_server.storage.services.transaction_desk import EndRequest
from tandemlog_server.storage.services.transaction_errors import TransactionDecidedError

from ...access.caller import Caller
from ...access.identities import Right
from ...pulls.read_turns import ReadTurns
from ...services.transaction_ends import TransactionEnds
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError

logger = logging.getLogger(__name__)

SAME_SEND_MS: Final = 10_000
"""Longer than the attempts of one send take, which are 3 s together by default."""
NAMED_KEPT: Final = 65_536
ANOTHER: Final = "another record is there"


class _Found(NamedTuple):
    transaction_id: str
    topic: str


class NamedHalves:
    """The places of the last halves that clients have named. Pure. It is the memory of one master:
    after a failover, a program that has sent one Message object in two transactions within
    SAME_SEND_MS, and decided neither before, has the first one rolled back by the second."""

    def __init__(self, kept: int = NAMED_KEPT) -> None:
        self._kept = kept
        self._offsets: dict[int, None] = {}

    def add(self, log_offset: int) -> None:
        self._offsets.pop(log_offset, None)
        self._offsets[log_offset] = None
        while len(self._offsets) > self._kept:
            del self._offsets[next(iter(self._offsets))]

    def sent_again(self, half: OpenHalf, of_its_key: Iterable[OpenHalf]) -> list[str]:
        """The transactions among halves `of_its_key` that are earlier attempts of the send that
        `half` is of."""
        same = half.half.group, half.half.topic
        first = half.store_timestamp - SAME_SEND_MS
        return [
            each.half.transaction_id
            for each in of_its_key
            if each.log_offset < half.log_offset
            and each.undecided
            and (each.half.group, each.half.topic) == same
            and each.half.transaction_id != half.half.transaction_id
            and each.store_timestamp >= first
            and each.log_offset not in self._offsets
        ]


class TransactionMethods:
    """See the module; for the event loop."""

    def __init__(self, store: MessageStore, ends: TransactionEnds, turns: ReadTurns) -> None:
        self._store = store
        self._ends = ends
        self._turns = turns
        self._named = NamedHalves()

    def methods(self) -> dict[int, Method]:
        """By request code."""
        return {RequestCode.END_TRANSACTION: Method(self.end_transaction)}

    async def end_transaction(self, call: RemotingCall) -> Command | None:
        """37. A real broker answers an outcome that is not known yet with nothing, and so do we:
        the request is oneway."""
        try:
            wanted = read_end_transaction(call.request.fields)
        except FormatError as error:
            raise RemotingRefusedError(ResponseCode.SYSTEM_ERROR, f"request 37: {error}") from error
        if not wanted.from_check:
            # before anything is waited for: the next decision must see it
            self._named.add(wanted.log_offset)
        if wanted.commits is None:
            return None
        await self._ends.settle()
        half = self._open_half(wanted, call.caller)
        if half is None and not wanted.commits:
            await self._ends.settle_unconfirmed()
            half = self._open_half(wanted, call.caller)
        if half is None:
            work = partial(self._ended_half, wanted, call.caller)
            found = await self._turns.run(call.caller, work)
        else:
            found = _Found(half.half.transaction_id, half.half.topic)
        call.caller.require(Right.WRITE, [found.topic])
        before = [] if half is None else self._sent_again(half)
        request = EndRequest(found.transaction_id, only=wanted.log_offset)
        await self._ends.end(request, commits=wanted.commits)
        for each in before:
            with suppress(TransactionDecidedError):
                await self._ends.end(EndRequest(each), commits=False)
        return call.request.response()

    def _open_half(self, wanted: EndTransaction, caller: Caller) -> OpenHalf | None:
        """The half that is decided, if it is not done with. Raises RemotingRefusedError if another
        one stands there, or if it is one of several messages."""
        fold = self._store.transactions
        with fold.lock:
            half = fold.halves.get(wanted.log_offset)
            together = [] if half is None else fold.of(half.half.transaction_id)
        if half is None:
            return None
        _check(wanted, half.half, half.queue_offset, caller)
        if any(each.half.key != half.half.key for each in together):
            raise _not_found(
                wanted, "it is one message of several in a transaction, which end together"
            )
        return half

    def _ended_half(self, wanted: EndTransaction, caller: Caller) -> _Found:
        """The same of a half that the fold does not have any more: what its record says."""
        try:
            # in its queue: a body can have bytes in it that look like a half
            data = self._store.reader.message_at(wanted.log_offset)
            record = decode_record(data, physical_offset=wanted.log_offset)
        except (NoRecordError, OffsetOutOfRangeError, UnreadableError, FormatError) as error:
            raise _not_found(wanted, str(error)) from None
        half = half_of(record) if record.topic == HALF_TOPIC else None
        if half is None:
            raise _not_found(wanted, ANOTHER)
        _check(wanted, half, record.queue_offset, caller)
        return _Found(half.transaction_id, half.topic)

    def _sent_again(self, half: OpenHalf) -> list[str]:
        fold = self._store.transactions
        with fold.lock:
            return self._named.sent_again(half, fold.of_key(half.half.key))


def _check(wanted: EndTransaction, half: Half, queue_offset: int, caller: Caller) -> None:
    """What a half says is for who may write its topic."""
    fault = mismatch(wanted, group=half.group, key=half.key, queue_offset=queue_offset)
    if fault is not None:
        identity = caller.restricted
        shown = identity is None or identity.may(Right.WRITE, half.topic)
        raise _not_found(wanted, fault if shown else ANOTHER)


def _not_found(wanted: EndTransaction, why: str) -> RemotingRefusedError:
    return RemotingRefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"no half message at log offset {wanted.log_offset} is the one that is decided: {why}",
    )
