"""Messages that come later, on the node that is the master: when to look, and calls to recall.

    loop      may puts be taken now? ──▶ ┌ thread of its own ─ desk.deliver() ┐ ──▶ sleep until the
                                         └ one append of what is due          ┘     next is due

A delivery is a put: it waits where puts of clients have to wait (too few replicas in sync, too much
of the log unconfirmed, a switch of the master under way, dispatch behind), and no client waits for
it.

It looks again at LOOK_S at the latest, for messages that have arrived since; so a message with a
short delay comes that much late at most.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.errors import FormatError
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.errors import DiskFullError, StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.broker_progress import BrokerProgress
from tandemlog_server.storage.services.delay_desk import (
    DelayDesk,
    NotReadyError,
    NotWaitingError,
)

from ..error_status import RequestRefusedError
from ..process.tasks import stopped
from ..pulls.dispatch_wait import DispatchWait
from ..roles.master_role import MasterRole
from .confirm_waiters import ConfirmWaiters
from .own_confirmation import require_confirmed

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.02
"""Between two looks, while something waits."""
IDLE_S: Final = 0.25
"""The same while nothing does."""
REFUSED_S: Final = 0.1
FAILED_S: Final = 1.0
READY_S: Final = 5.0
"""How long a recall waits for a term that has just begun."""
READY_STEP_S: Final = 0.02
BROKER_S: Final = 5.0
"""Between two notes for a broker that takes the store over."""


class DelayService:
    """See the module; lives in the event loop."""

    def __init__(self, store: MessageStore, desk: DelayDesk) -> None:
        self._store = store
        self.desk = desk
        self._dispatch = DispatchWait(store)
        self._broker = BrokerProgress(store)
        self._next_note = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="delays")
        self._task: asyncio.Task[None] | None = None

    # ---- terms

    def begin(self, role: MasterRole) -> None:
        self.desk.begin()
        self._task = asyncio.create_task(self._run(role), name="delays")

    async def end(self) -> None:
        if self._task is not None:
            await stopped(self._task)
            self._task = None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._note_last)
        self.desk.end()

    def close(self) -> None:
        """No term will begin any more."""
        self._thread.shutdown(wait=True)

    # ---- messages that are due

    async def _run(self, role: MasterRole) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if role.puts_wait():
                await asyncio.sleep(REFUSED_S)
                continue
            step = loop.run_in_executor(self._thread, self._step)
            try:
                pause_s = await asyncio.shield(step)
            except asyncio.CancelledError:
                # an append under way is waited for: the store may be closed next
                await asyncio.wait([step])
                raise
            if pause_s:
                await asyncio.sleep(pause_s)

    def _step(self) -> float:
        """One append of what is due; how long to wait for the next (s). In the service's thread."""
        try:
            if self._deliver() or self._roll():
                return 0.0
            if self._store.clock.monotonic() >= self._next_note:
                self._note_progress()
            due_ms = self.desk.next_due_ms()
        except StoreError as error:
            logger.warning("delayed messages wait: %s", error)
            return FAILED_S
        except Exception:
            # the next look may succeed, and nothing else would let messages come
            logger.exception("delayed messages wait")
            return FAILED_S
        if due_ms is None:
            return IDLE_S if self.desk.ready else LOOK_S
        return min(max((due_ms - self._store.clock.now_ms()) / 1000, 0.001), LOOK_S)

    def _note_last(self) -> None:
        """The next broker reads what came up to here: it has to be durable before."""
        try:
            self._store.flush()
        except StoreError:
            return  # the store reports it
        self._note_progress()

    def _deliver(self) -> int:
        try:
            return self.desk.deliver()
        except DiskFullError:
            # what waits in old files is written again first: then they go, and there is room
            if not self._roll():
                raise
            return 1

    def _roll(self) -> int:
        end = self._store.retention_waits_for
        return 0 if end is None else self.desk.roll(end)

    def _note_progress(self) -> None:
        """What a broker would read; while that fails the store is as it was."""
        try:
            self._broker.save()
        except (StoreError, OSError) as error:
            logger.warning("the progress of delays is not noted for RocketMQ: %s", error)
        self._next_note = self._store.clock.monotonic() + BROKER_S

    # ---- recalls

    async def recall(
        self,
        request: broker_pb2.RecallRequest,
        waiters: ConfirmWaiters,
        epoch: int | None,
        timeout_s: float,
    ) -> broker_pb2.RecallResponse:
        """Once the recall is confirmed. Raises RequestRefusedError, StoreError."""
        try:
            handle = decode_handle(request.recall_handle)
        except FormatError as error:
            raise _refused(common_pb2.INVALID_ARGUMENT, str(error), "recall_handle") from error
        if handle.topic != request.topic:
            text = f"the handle is of a message to {handle.topic!r}, not to {request.topic!r}"
            raise _refused(common_pb2.INVALID_ARGUMENT, text, "topic")
        await self._ready()
        # the message may have been sent a moment ago
        await self._dispatch.confirmed()
        loop = asyncio.get_running_loop()
        try:
            recalled = await loop.run_in_executor(self._thread, self.desk.recall, handle)
        except NotReadyError as error:
            raise _refused(common_pb2.NOT_IN_SYNC, str(error)) from error
        except NotWaitingError as error:
            raise _refused(common_pb2.NOT_WAITING, str(error), "recall_handle") from error
        what = "the recall, without which the message may still come,"
        await require_confirmed(waiters, recalled.end_offset, epoch, timeout_s, what)
        return broker_pb2.RecallResponse(
            physical_offset=recalled.log_offset, deliver_at_ms=recalled.due_ms
        )

    async def _ready(self) -> None:
        """Wait until this master knows what the last one has delivered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S
        while not self.desk.ready and loop.time() < deadline:  # noqa: ASYNC110 - a few looks
            await asyncio.sleep(READY_STEP_S)


def _refused(code: int, text: str, field: str = "") -> RequestRefusedError:
    return RequestRefusedError(common_pb2.ErrorCode.ValueType(code), text, field=field)
