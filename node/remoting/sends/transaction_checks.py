"""CHECK_TRANSACTION_STATE (39): what the master asks classic producers about open transactions.

    check_board: due at its group ──▶ a producer of the group that is connected here, each in its
                                      turn, and that may write the message ──▶ 39, with the half

Which transactions are asked about, how often, and when they are given up, is the engine's business
(check_board.py). It is the same for a producer of this project, which polls for its group, and for
a classic one. A check that no producer takes counts all the same.

A 39 has one message. So a transaction of several is left to producers that know them all.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.transaction_wire import check_body, check_fields
from tandemlog_server.storage.errors import OffsetOutOfRangeError, UnreadableError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import NoRecordError

from ...access.caller import Caller
from ...access.identities import Right
from ...error_status import RequestRefusedError
from ...pulls.read_turns import ReadTurns
from ...transactions.transaction_work import TransactionWork
from ..door.remoting_call import Connection

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.25
MOST_CHECKS: Final = 64
"""Of one producer at a time; and bytes of the messages in them."""
MOST_BYTES: Final = 1 << 20


class Producer(Protocol):
    """A client that sends for a group."""

    @property
    def connection(self) -> Connection: ...


Producers = Callable[[str], Sequence[Producer]]
"""Those of a group that are connected here."""
CallerOf = Callable[[Connection], Caller | None]
"""Who is at the other end; None if the connection has ended."""


class _Check(NamedTuple):
    fields: dict[str, str]
    body: bytes


class TransactionChecks:
    """See the module; for the event loop."""

    def __init__(
        self,
        store: MessageStore,
        work: TransactionWork,
        turns: ReadTurns,
        producers: Producers,
        caller_of: CallerOf,
    ) -> None:
        self._store = store
        self._work = work
        self._turns = turns
        self._producers = producers
        self._caller_of = caller_of
        self._turn = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # else no producer would be asked from here on
                logger.exception("producers are not asked this time, and are again in a moment")

    async def look(self) -> None:
        """Ask about what is due."""
        for group in self._work.board.groups if self._work.leads else ():
            producers = list(self._producers(group))
            first = self._turn % len(producers) if producers else 0
            self._turn += 1
            for each in producers[first:] + producers[:first]:
                caller = self._caller_of(each.connection)
                if caller is not None and not each.connection.closed:
                    await self._ask(group, each.connection, caller)

    async def _ask(self, group: str, connection: Connection, caller: Caller) -> None:
        names = self._work.board.take(group, MOST_CHECKS, partial(self._may_answer, caller))
        if not names:
            return
        try:
            checks = await self._turns.run(caller, partial(self._checks, names))
        except RequestRefusedError as error:
            logger.warning("producers of group %s are not asked: %s", group, error)
            return
        for each in checks:
            connection.push(RequestCode.CHECK_TRANSACTION_STATE, each.fields, each.body)

    def _may_answer(self, caller: Caller, name: str) -> bool:
        fold, identity = self._store.transactions, caller.restricted
        with fold.lock:
            halves = fold.of(name)
        if len({each.half.key for each in halves}) != 1:
            return False
        return identity is None or identity.patterns(Right.WRITE).cover(halves[0].half.topic)

    def _checks(self, names: Sequence[str]) -> list[_Check]:
        rows: list[_Check] = []
        size = 0
        fold = self._store.transactions
        for name in names:
            with fold.lock:
                half = next((each for each in fold.of(name) if each.undecided), None)
            if half is None:
                continue
            size += half.size
            if rows and size > MOST_BYTES:
                break  # they are asked about again
            offset = half.log_offset
            try:
                data = self._store.reader.record_at(offset)
                record = decode_record(data, physical_offset=offset)
                rows.append(_Check(check_fields(record), check_body(record)))
            except (NoRecordError, OffsetOutOfRangeError, UnreadableError, FormatError) as error:
                logger.warning("transaction %s is not asked about: %s", name, error)
        return rows
