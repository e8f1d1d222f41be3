"""Ending a transaction on the master, for whichever door the request came by.

settle      this node leads, knows what the last master has decided, and has dispatched all
            that is confirmed: the halves that were acknowledged are in the fold
end         one append, in the thread of transactions
confirmed   nothing is said of a decision before the log is confirmed up to it
"""

from functools import partial

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.transaction_desk import Ended, EndRequest

from ..error_status import RequestRefusedError
from ..pulls.dispatch_wait import DispatchWait
from ..puts.confirm_waiters import ConfirmWaiters
from ..puts.own_confirmation import require_confirmed
from ..roles.role import CurrentRole
from ..settings.sections import PutSection
from ..transactions.transaction_work import TransactionWork


class TransactionEnds:
    """See the module; for the event loop. `put` says how long a confirmation is waited for. All
    raise RequestRefusedError, and what the desk raises."""

    def __init__(
        self,
        store: MessageStore,
        work: TransactionWork,
        current: CurrentRole,
        waiters: ConfirmWaiters,
        put: PutSection,
    ) -> None:
        self._store = store
        self._work = work
        self._current = current
        self._waiters = waiters
        self._put = put
        self._dispatch = DispatchWait(store)

    async def settle(self, end: int | None = None) -> None:
        """Wait until the log up to `end` is known here, by default what is confirmed now."""
        self._current.role.require_master("end a transaction on")
        self._current.role.admit(broker_pb2.CLUSTER)
        await self._work.ready()
        end = self._store.confirmed.value if end is None else end
        await self._dispatch.reach(end)
        if self._store.reputed.value < end:
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"the log is dispatched up to {self._store.reputed.value}, the messages of the "
                f"transaction may lie before {end}: try again in a moment",
            )

    async def settle_unconfirmed(self) -> None:
        """The same for all that is in the log now: a half that was not acknowledged may be there
        without being confirmed."""
        await self.settle(self._store.log.wrote.value)

    async def roll_back(self, request: EndRequest) -> Ended:
        """Messages of which the caller has no acknowledgement are rolled back too, as far as they
        are in the log."""
        ended = await self.end(request, commits=False)
        if ended.end_offset or ended.again:
            return ended
        await self.settle_unconfirmed()
        return await self.end(request, commits=False)

    async def end(self, request: EndRequest, *, commits: bool) -> Ended:
        """The outcome, confirmed."""
        epoch = self._current.role.epoch()
        desk = self._work.desk
        decide = desk.commit if commits else desk.roll_back
        ended = await self._work.in_thread(partial(decide, request))
        return await self.confirmed(ended, "the commit" if commits else "the rollback", epoch)

    async def confirmed(self, ended: Ended, what: str, epoch: int | None = None) -> Ended:
        """`ended`, once it is. `epoch` is that of the term that has ended it, by default this
        one."""
        if ended.end_offset:
            epoch = self._current.role.epoch() if epoch is None else epoch
            timeout_s = self._put.timeout_ms / 1000
            await require_confirmed(self._waiters, ended.end_offset, epoch, timeout_s, what)
        return ended
