"""Answering the master's checks: what became of a transaction that was left open.

    master: which outcome? ──▶ transaction_checker(message) ──▶ COMMIT, ROLLBACK ─▶ it ends
    (of any producer of the group)                              UNKNOWN          ─▶ asked again

The checker looks where the program has made its decision, such as a row of a database that was
written in the same step. It is called in a thread, one check at a time. An exception counts as
UNKNOWN.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from ..cluster.connection import Connection
from ..errors import TandemlogError
from ..format.constants import KEYS, SHARDING_KEY, TAGS
from ..format.errors import FormatError
from ..format.record.properties import split_keys
from ..format.record.record import Record, decode_record
from ..format.transaction.half import half_of
from ..message import Message
from ..unpacking import unpacked
from ..v1 import transaction_pb2
from .framing import is_reserved
from .transactions import end_transaction

logger = logging.getLogger(__name__)

WAIT_MS: Final = 20_000
CALL_MARGIN_MS: Final = 5_000
FAILED_S: Final = 1.0


class TransactionDecision(Enum):
    """What a transaction_checker says."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


TransactionChecker = Callable[[Message], TransactionDecision]
"""From the first message of a transaction to its outcome."""

_OUTCOMES: Final = {
    TransactionDecision.COMMIT: transaction_pb2.COMMITTED,
    TransactionDecision.ROLLBACK: transaction_pb2.ROLLED_BACK,
}


def sent_message(record: Record) -> Message | None:
    """The message of a half record, as it was sent; None if it is no half record. Raises
    FormatError for a body that cannot be decompressed."""
    half = half_of(record)
    if half is None:
        return None
    properties = record.properties
    keys = split_keys(properties.get(KEYS, ""))
    return Message(
        half.topic,
        unpacked(record.sys_flag, record.body),
        keys=keys[0] if len(keys) == 1 else keys,
        tags=properties.get(TAGS, ""),
        properties={n: v for n, v in properties.items() if not is_reserved(n)} or None,
        queue_id=half.queue_id,
        sharding_key=properties.get(SHARDING_KEY),
        flag=record.flag,
        born_timestamp=record.born_timestamp,
    )


class TransactionChecks:
    """See the module; one event loop."""

    def __init__(self, connection: Connection, group: str, checker: TransactionChecker) -> None:
        self._connection = connection
        self._group = group
        self._checker = checker

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                checks = await self._poll()
            except TandemlogError as error:
                logger.debug("no checks of transactions: %s", error)
                await asyncio.sleep(FAILED_S)
                continue
            for check in checks:
                await self._answer(check)

    async def _poll(self) -> list[transaction_pb2.TransactionCheck]:
        request = transaction_pb2.PollTransactionChecksRequest(
            producer_group=self._group, wait_ms=WAIT_MS
        )
        node = await self._connection.master()
        try:
            answer = await node.ask(
                node.transactions.PollTransactionChecks, request, WAIT_MS + CALL_MARGIN_MS
            )
        except TandemlogError as error:
            if error.elsewhere:
                self._connection.forget_master(node, str(error))
            raise
        return list(answer.checks)

    async def _answer(self, check: transaction_pb2.TransactionCheck) -> None:
        name = check.transaction_id
        try:
            message = sent_message(decode_record(check.half))
            if message is None:
                return
            decision = await asyncio.to_thread(self._checker, message)
            outcome = _OUTCOMES.get(TransactionDecision(decision))
            if outcome is None:
                return
            request = transaction_pb2.EndTransactionRequest(
                transaction_id=name, outcome=outcome, messages=check.messages
            )
            await end_transaction(self._connection, request)
        except (TandemlogError, FormatError) as error:
            logger.warning("transaction %s: the check is not answered: %s", name, error)
        except Exception:
            logger.exception("transaction %s: the transaction_checker has failed", name)
