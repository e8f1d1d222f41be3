"""What the master asks producers of the 5.x API about transactions that are not decided.

    check_board: due at its group, which is the topic of the message ─▶ a producer of that topic
    with a Telemetry stream here, each in its turn, that may write the message ─▶ the half, rendered

Which transactions are asked about, how often, and when they are given up, is the engine's business
(check_board.py), the same as for the producers of the other doors.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.delivered_messages import rendered
from tandemlog_server.rocketmq.messaging.refusals import made_status
from tandemlog_server.storage.errors import OffsetOutOfRangeError, UnreadableError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import NoRecordError

from ..access.access_refusals import NotKnownError
from ..access.caller import Caller
from ..access.identities import Right
from ..error_status import RequestRefusedError
from ..pulls.read_turns import ReadTurns
from ..transactions.transaction_work import TransactionWork
from .client_sessions import ClientSession, ClientSessions

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.25
MOST_CHECKS: Final = 64
"""Of one producer at a time; and bytes of the messages in them."""
MOST_BYTES: Final = 1 << 20


class OrphanChecks:
    """See the module; for the event loop."""

    def __init__(
        self,
        store: MessageStore,
        work: TransactionWork,
        turns: ReadTurns,
        sessions: ClientSessions,
    ) -> None:
        self._store = store
        self._work = work
        self._turns = turns
        self._sessions = sessions

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
        for topic in self._work.board.groups if self._work.leads else ():
            for session in self._sessions.producers(topic):
                await self._ask(topic, session)

    async def _ask(self, topic: str, session: ClientSession) -> None:
        if session.waiting:
            return  # it does not take what it was asked before
        caller = session.call.caller
        try:
            caller.renew()  # its stream may have been silent since its rights were taken
        except NotKnownError:
            return
        names = self._work.board.take(topic, MOST_CHECKS, partial(self._may_answer, caller))
        if not names:
            return
        try:
            session.waiting.extend(await self._turns.run(caller, partial(self._checks, names)))
        except RequestRefusedError as error:
            logger.warning("producers of topic %s are not asked: %s", topic, error)

    def _may_answer(self, caller: Caller, name: str) -> bool:
        fold, identity = self._store.transactions, caller.restricted
        with fold.lock:
            halves = fold.of(name)
        if len({each.half.key for each in halves}) != 1:
            return False
        return identity is None or identity.patterns(Right.WRITE).cover(halves[0].half.topic)

    def _checks(self, names: Sequence[str]) -> list[v2.TelemetryCommand]:
        """In a thread: it reads the disk."""
        commands: list[v2.TelemetryCommand] = []
        size = 0
        fold = self._store.transactions
        for name in names:
            with fold.lock:
                half = next((each for each in fold.of(name) if each.undecided), None)
            if half is None:
                continue
            try:
                data = self._store.reader.record_at(half.log_offset)
                record = decode_record(data, physical_offset=half.log_offset)
                message = rendered(record, topic=half.half.topic)
            except (NoRecordError, OffsetOutOfRangeError, UnreadableError, FormatError) as error:
                logger.warning("transaction %s is not asked about: %s", name, error)
                continue
            size += len(message.body)
            if commands and size > MOST_BYTES:
                break  # they are asked about again
            command = v2.TelemetryCommand(status=made_status(v2.OK))
            orphan = command.recover_orphaned_transaction_command
            orphan.message.CopyFrom(message)
            orphan.transaction_id = name
            commands.append(command)
        return commands
