"""A transaction without asyncio: the same names as AsyncTransaction, for one thread."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ..errors import OutcomeUnknownError, TandemlogError, TransactionDecidedError
from ..in_transaction import InTransaction
from ..message import Message
from ..produce.transactions import Offsets, TransactionResult, TransactionState, aborted
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from ..produce.futures import SendFuture

logger = logging.getLogger(__name__)


class Transaction:
    """See Producer.transaction, and tandemlog/produce/transactions.py."""

    def __init__(
        self,
        thread: LoopThread,
        state: TransactionState,
        send: Callable[[Message, InTransaction], "SendFuture"],
        first: Sequence[Message],
    ) -> None:
        self._thread = thread
        self._state = state
        self._send = send
        self._first = first

    @property
    def transaction_id(self) -> str:
        """By which an operator finds it (`tandemlog transaction list`)."""
        return self._state.transaction_id

    def __enter__(self) -> Self:
        self._state.begin()
        try:
            for message in self._first:
                self.send(message)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._state.is_open:
            return
        if kind is None:
            self.commit()
        else:
            self._leave()

    def _leave(self) -> None:
        try:
            self.rollback()
        except TandemlogError as error:
            logger.warning("transaction %s is not rolled back yet: %s", self.transaction_id, error)

    def send(self, message: Message) -> "SendFuture":
        """A message more, which is read when the transaction is committed. The future says that it
        is stored; its position comes with the commit. Raises as Producer.send, and
        TransactionEndedError once an end has begun."""
        self._state.check_takes()
        return self._state.sent(self._send(message, self._state.how))

    def commit_offsets(
        self, offsets: Offsets, what: Any = None, *, group: str | None = None
    ) -> None:
        """Offsets that count with the transaction: of a stream, all that it has delivered so far,
        or up to and with a message or batch `what`; or by (topic, queue id) of a group. Raises
        InvalidArgumentError, ClientClosedError for a stream without a group."""
        self._state.add_offsets(offsets, what, group)

    def commit(self) -> TransactionResult:
        """All of it counts from now on. If a message could not be stored, or the master refuses the
        commit (FencedMemberError: another member has the queues), it is rolled back, and the error
        is raised. OutcomeUnknownError: no master has said which outcome it has."""
        sent = self._state.begin_end()
        errors = [error for future in sent if (error := future.exception()) is not None]
        if errors:
            self._end_refused()
            raise aborted(errors[0])
        try:
            return self._end(messages=len(sent))
        except (OutcomeUnknownError, TransactionDecidedError):
            raise
        except TandemlogError:
            if self._end_refused():
                return self._state.committed()
            raise

    def _end_refused(self) -> bool:
        """Roll back what was not committed; whether it is committed all the same, as the first of
        repeated requests may have done."""
        try:
            self._end()
        except TransactionDecidedError:
            return True
        except TandemlogError as error:
            logger.warning("transaction %s is not rolled back yet: %s", self.transaction_id, error)
        return False

    def rollback(self) -> TransactionResult:
        """Nothing of it counts, ever."""
        for future in self._state.begin_end():
            future.exception()
        return self._end()

    def _end(self, *, messages: int | None = None) -> TransactionResult:
        """Commit so many messages; None: roll back."""
        commits, count = messages is not None, -1 if messages is None else messages
        return self._thread.run(self._state.end(commits=commits, messages=count))
