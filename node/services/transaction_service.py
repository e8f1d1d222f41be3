"""Transactions over gRPC: ending them, asking about them, and what administers them.

    EndTransaction ─▶ all that is confirmed is dispatched ─▶ rights ─▶ one append ─▶ confirmed

A transaction is looked for where the fold has it, and that is where its half messages were
dispatched: the caller has their acknowledgements, so they are confirmed, and are waited for here.
"""
# The methods have the names of transaction.proto.
# ruff: noqa: N802

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tandemlog.format.calls import MAX_ROWS
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog.format.transaction.half import MOST_GROUP_CHARACTERS, MOST_ID_CHARACTERS
from tandemlog.v1 import broker_pb2, common_pb2, transaction_pb2
from tandemlog_server.storage.errors import OffsetOutOfRangeError, UnreadableError
from tandemlog_server.storage.folds.transaction_fold import OpenHalf
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import NoRecordError
from tandemlog_server.storage.services.transaction_desk import EndRequest

from ..access.caller import Caller
from ..access.identities import Right
from ..error_status import RequestRefusedError, check_count
from ..pulls.dispatch_wait import DispatchWait
from ..pulls.pages import NAME_PAGES, rows_after
from ..pulls.read_turns import ReadTurns
from ..roles.role import CurrentRole
from ..transactions.transaction_work import TransactionWork
from .group_service import GroupService
from .transaction_ends import TransactionEnds

logger = logging.getLogger(__name__)

MAX_WAIT_MS: Final = 60_000
MAX_CHECKS: Final = 32
MAX_GROUPS: Final = 64
CHECK_BYTES: Final = 4 << 20
ROWS_BYTES: Final = 1 << 20


class TransactionService:
    """See the module."""

    def __init__(
        self,
        store: MessageStore,
        work: TransactionWork,
        ends: TransactionEnds,
        current: CurrentRole,
        turns: ReadTurns,
        members: GroupService,
    ) -> None:
        self._store = store
        self._work = work
        self._ends = ends
        self._current = current
        self._turns = turns
        self._members = members
        self._dispatch = DispatchWait(store)

    # ---- ending

    async def EndTransaction(
        self, request: transaction_pb2.EndTransactionRequest, caller: Caller
    ) -> transaction_pb2.EndTransactionResponse:
        _check_id(request.transaction_id)
        _check_outcome(request.outcome)
        count = None if request.messages < 0 else request.messages
        commits = request.outcome == transaction_pb2.COMMITTED
        await self._ends.settle()
        self._check_rights(caller, request.transaction_id)
        if not commits:
            ended = await self._ends.roll_back(EndRequest(request.transaction_id, count))
        elif (known := self._work.desk.known(request.transaction_id, committed=True)) is not None:
            # whatever became of the groups and topics of its offsets since
            ended = await self._ends.confirmed(known, "the commit")
        else:
            admits = await self._offsets(request.offsets, caller)
            offsets = tuple(
                GroupOffset(each.group, row.topic, row.queue_id, row.queue_offset)
                for each in request.offsets
                for row in each.offsets
            )
            wanted = EndRequest(request.transaction_id, count, offsets, partial(_all, admits))
            ended = await self._ends.end(wanted, commits=True)
        return transaction_pb2.EndTransactionResponse(
            again=ended.again,
            messages=[
                transaction_pb2.CommittedMessage(
                    topic=each.topic,
                    queue_id=each.queue_id,
                    queue_offset=each.queue_offset,
                    physical_offset=each.physical_offset,
                )
                for each in ended.messages
            ],
        )

    async def _offsets(
        self, requests: Sequence[broker_pb2.CommitOffsetsRequest], caller: Caller
    ) -> list[Callable[[], None]]:
        check_count("offsets", len(requests), MAX_GROUPS)
        check_count("offsets", sum(len(each.offsets) for each in requests), MAX_ROWS)
        for each in requests:
            self._members.lead(each.group)
        return [
            await self._turns.run(
                caller, partial(self._members.prepare, each), room=0, size_of=lambda _: 0
            )
            for each in requests
        ]

    def _check_rights(self, caller: Caller, transaction_id: str) -> None:
        if caller.restricted is None:
            return
        fold = self._store.transactions
        with fold.lock:
            topics = {each.half.topic for each in fold.of(transaction_id)}
        caller.require(Right.WRITE, sorted(topics))

    # ---- checks

    async def PollTransactionChecks(
        self, request: transaction_pb2.PollTransactionChecksRequest, caller: Caller
    ) -> transaction_pb2.PollTransactionChecksResponse:
        if not 0 < len(request.producer_group) <= MOST_GROUP_CHARACTERS:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"a producer group has 1 to {MOST_GROUP_CHARACTERS} characters",
                field="producer_group",
            )
        # also of a node that follows a broker, which has transactions of its own
        self._current.role.admit(broker_pb2.NO_WAIT)
        wait_s = min(max(request.wait_ms, 0), MAX_WAIT_MS) / 1000
        limit = min(request.max_checks or MAX_CHECKS, MAX_CHECKS)
        with caller.long_poll():
            names = await self._work.poll(
                request.producer_group, limit, wait_s, partial(self._may_answer, caller)
            )
        response = transaction_pb2.PollTransactionChecksResponse()
        response.checks.extend(
            await self._turns.run(
                caller,
                partial(self._checks, names, caller),
                room=CHECK_BYTES,
                size_of=lambda rows: sum(each.ByteSize() for each in rows),
            )
        )
        return response

    def _may_answer(self, caller: Caller, name: str) -> bool:
        """Whether the caller may write the messages of this transaction."""
        if caller.restricted is None:
            return True
        fold = self._store.transactions
        with fold.lock:
            return _may_write(caller, fold.of(name))

    def _checks(
        self, names: Sequence[str], caller: Caller
    ) -> list[transaction_pb2.TransactionCheck]:
        """Of those whose messages the caller may write."""
        rows: list[transaction_pb2.TransactionCheck] = []
        size = 0
        fold = self._store.transactions
        for name in names:
            with fold.lock:
                halves = [each for each in fold.of(name) if each.undecided]
            if not halves or not _may_write(caller, halves):
                continue
            try:
                half = bytes(self._store.reader.record_at(halves[0].log_offset))
            except (NoRecordError, OffsetOutOfRangeError, UnreadableError) as error:
                logger.warning("transaction %s is not asked about: %s", name, error)
                continue
            size += len(half)
            if rows and size > CHECK_BYTES:
                break  # it is asked about again
            rows.append(
                transaction_pb2.TransactionCheck(
                    transaction_id=name,
                    messages=len(halves),
                    half=half,
                    checks=self._work.board.checks(name),
                )
            )
        return rows

    # ---- operators

    async def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, caller: Caller
    ) -> transaction_pb2.ListTransactionsResponse:
        await self._dispatch.confirmed()
        return await self._turns.run(
            caller,
            partial(self._list, request, caller),
            room=ROWS_BYTES,
            size_of=lambda answer: answer.ByteSize(),
        )

    def _list(
        self, request: transaction_pb2.ListTransactionsRequest, caller: Caller
    ) -> transaction_pb2.ListTransactionsResponse:
        fold = self._store.transactions
        with fold.lock:
            found = dict(fold.transactions())
        seen = {
            name: halves
            for name, halves in found.items()
            if caller.restricted is None or caller.seen(each.half.topic for each in halves)
        }
        # a key of the page is the place in the log, so the oldest come first
        by_place = {f"{halves[0].log_offset:020d}": name for name, halves in seen.items()}
        rows, following = rows_after(
            request.page,
            sorted(by_place),
            lambda place: self._row(by_place[place], seen[by_place[place]]),
            lambda row: row.ByteSize(),
            NAME_PAGES,
        )
        return transaction_pb2.ListTransactionsResponse(transactions=rows, next_page=following)

    def _row(self, name: str, halves: Sequence[OpenHalf]) -> transaction_pb2.OpenTransaction:
        first, checks = halves[0], self._work.board.checks(name)
        decided = not any(each.undecided for each in halves)
        limits = self._work.limits
        return transaction_pb2.OpenTransaction(
            transaction_id=name,
            producer_group=first.half.group,
            topics=sorted({each.half.topic for each in halves}),
            messages=len(halves),
            begun_ms=first.store_timestamp,
            physical_offset=first.log_offset,
            checks=checks,
            decided=decided,
            kept=limits.undecided == "keep" and checks >= limits.max_checks and not decided,
        )

    async def DecideTransaction(
        self, request: transaction_pb2.DecideTransactionRequest, caller: Caller
    ) -> transaction_pb2.DecideTransactionResponse:
        _check_id(request.transaction_id)
        _check_outcome(request.outcome)
        await self._ends.settle()
        fold = self._store.transactions
        with fold.lock:
            halves = fold.of(request.transaction_id)
            row = self._row(request.transaction_id, halves) if halves else None
            known = request.transaction_id in fold.outcomes
        if row is None and not known:
            raise RequestRefusedError(
                common_pb2.UNKNOWN_TRANSACTION,
                f"there is no open transaction {request.transaction_id!r}: see ListTransactions",
                field="transaction_id",
            )
        response = transaction_pb2.DecideTransactionResponse(transaction=row)
        if request.dry_run:
            return response
        commits = request.outcome == transaction_pb2.COMMITTED
        ended = await self._ends.end(EndRequest(request.transaction_id), commits=commits)
        response.again = ended.again
        return response


def _all(admits: Sequence[Callable[[], None]]) -> None:
    for admit in admits:
        admit()


def _may_write(caller: Caller, halves: Sequence[OpenHalf]) -> bool:
    identity = caller.restricted
    if identity is None:
        return True
    patterns = identity.patterns(Right.WRITE)
    return patterns.everything or all(patterns.cover(each.half.topic) for each in halves)


def _check_id(transaction_id: str) -> None:
    if not 0 < len(transaction_id) <= MOST_ID_CHARACTERS:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"the id of a transaction has 1 to {MOST_ID_CHARACTERS} characters",
            field="transaction_id",
            limit=MOST_ID_CHARACTERS,
            actual=len(transaction_id),
        )


def _check_outcome(outcome: int) -> None:
    if outcome not in (transaction_pb2.COMMITTED, transaction_pb2.ROLLED_BACK):
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            "a transaction ends as COMMITTED or ROLLED_BACK",
            field="outcome",
            actual=outcome,
        )
