"""EndTransaction: the decision of a client about its half message.

The transaction's id is the engine's own, which the send has returned: so any master finds it. Who
decides needs the right to write to the topic of the half; of one that is not open any more, to the
topic that the request names, and hears what became of it.
"""

from tandemlog.format.transaction.half import MOST_ID_CHARACTERS
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import topic_of
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.transaction_desk import EndRequest
from tandemlog_server.storage.services.transaction_errors import (
    TransactionDecidedError,
    UnknownTransactionError,
)

from ..services.transaction_ends import TransactionEnds
from .messaging_call import Answers, MessagingCall, Method


class TransactionMethods:
    """See the module; belongs to the loop."""

    def __init__(self, store: MessageStore, ends: TransactionEnds) -> None:
        self._store = store
        self._ends = ends

    def methods(self) -> list[Method]:
        return [
            Method("EndTransaction", v2.EndTransactionRequest, v2.EndTransactionResponse, self.end)
        ]

    async def end(self, request: v2.EndTransactionRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError, DeniedError, and what the end of a transaction raises in
        any door."""
        transaction_id, topic = request.transaction_id, topic_of(request.topic)
        if not 0 < len(transaction_id) <= MOST_ID_CHARACTERS:
            raise MessagingRefusedError(
                v2.INVALID_TRANSACTION_ID,
                f"a transaction_id has 1 to {MOST_ID_CHARACTERS} characters, not "
                f"{len(transaction_id)}",
            )
        call.caller.require_writes([topic.encode()])
        if request.resolution == v2.RESOLUTION_UNSPECIFIED:
            # it is not decided yet, and asked about again
            return [v2.EndTransactionResponse(status=made_status(v2.OK))]
        await self._ends.settle()
        call.caller.require_writes(each.encode() for each in self._topics(transaction_id))
        wanted = EndRequest(transaction_id)
        try:
            if request.resolution == v2.COMMIT:
                await self._ends.end(wanted, commits=True)
            else:
                await self._ends.roll_back(wanted)
        except (TransactionDecidedError, UnknownTransactionError) as problem:
            raise MessagingRefusedError(v2.INVALID_TRANSACTION_ID, str(problem)) from None
        return [v2.EndTransactionResponse(status=made_status(v2.OK))]

    def _topics(self, transaction_id: str) -> list[str]:
        fold = self._store.transactions
        with fold.lock:
            return [each.half.topic for each in fold.of(transaction_id)]
