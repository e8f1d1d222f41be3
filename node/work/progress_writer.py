"""What the engine has learned goes into the log: the task of a term that writes records.

    engine ──dead letters──▶ copies in %DLQ%group ──▶ their messages are done
           ──news─────────▶ progress record ──▶ confirmed: who waits for it is answered
    groups that the engine has forgotten ──▶ their last news, or that they are deleted
           (the log has grown by a file) ──▶ STATE

Records are written at the latest every `interval_s` while there is news, sooner after MANY
acknowledgements or where a caller waits (`synced`). One write is under way at a time, in a thread;
what could not be written comes with the next one. A node that must not take puts now (too few
replicas) writes none either: acknowledgements then stay in memory, and count. A dead letter that
cannot be stored keeps its message from being done, and nothing else.

A group is deleted with everything that the log says about it. Its last records may have been
written and not applied yet, so what the log says is asked for when they are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tandemlog.format.lease.progress import QueueProgress, split
from tandemlog.v1 import broker_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.leases.lease_engine import LeaseEngine
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.dead_letters import DeadLetterDesk
from tandemlog_server.storage.services.lease_desk import LeaseDesk

from ..error_status import RequestRefusedError
from ..roles.role import NodeRole

logger = logging.getLogger(__name__)

MANY: Final = 1_000
"""Acknowledgements that are written at once."""
WEIGHT: Final = 1 << 20
"""Bytes of one progress record."""
LETTERS: Final = 256
"""Dead letters of one round."""
FAILED_S: Final = 1.0
HELD_BACK_S: Final = 0.1
NOT_APPLIED_S: Final = 0.01

Made = TypeVar("Made")


@dataclass(slots=True)
class _Forgotten:
    """A group of which the engine knows nothing any more: its `news` that are not written yet, or
    that it is `deleted`. `written`: up to where the log then says everything about it."""

    news: list[QueueProgress] = field(default_factory=list)
    deleted: bool = False
    written: int | None = None


class ProgressWriter:
    """See the module; lives in the event loop, one for each term. `changed` is called when the
    engine may have work for consumers, `look` before each round."""

    def __init__(
        self,
        store: MessageStore,
        desk: LeaseDesk,
        letters: DeadLetterDesk,
        engine: LeaseEngine,
        role: NodeRole,
        thread: ThreadPoolExecutor,
        interval_s: float,
        changed: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        self._store = store
        self._desk = desk
        self._letters = letters
        self._engine = engine
        self._role = role
        self._thread = thread
        self._interval_s = interval_s
        self._changed = changed
        self._look = look
        self._forgotten: dict[str, _Forgotten] = {}
        self._letters_from = 0.0
        self._wake = asyncio.Event()
        self._since = 0
        self._ended = False
        # (log offset, news, those who wait until it is confirmed), ascending
        self._unconfirmed: deque[tuple[int, Sequence[QueueProgress], list[asyncio.Future[bool]]]]
        self._unconfirmed = deque()
        self._synced: list[asyncio.Future[bool]] = []
        loop = asyncio.get_running_loop()
        self._stop_listening = store.confirmed.listen(lambda: self._confirmed_in(loop))

    # ---- what others say

    def acknowledged(self, count: int) -> None:
        """So many messages have ended since the last call."""
        self._since += count
        if self._since >= MANY:
            self._wake.set()

    def hurry(self) -> None:
        """There may be dead letters."""
        self._wake.set()

    def forgotten(self, group: str, news: Sequence[QueueProgress] = ()) -> None:
        """The engine has forgotten the group, and had these news of it."""
        self._forgotten.setdefault(group, _Forgotten()).news += news
        self._wake.set()

    def deleted(self, group: str) -> None:
        """The engine has forgotten the group, and the log is to do so."""
        self._forgotten[group] = _Forgotten(deleted=True)
        self._wake.set()

    def knows(self, group: str) -> bool:
        """Whether the log says, or is just about to say, everything about the group."""
        return group not in self._forgotten

    async def synced(self, timeout_s: float) -> bool:
        """Wait until everything that the engine knows now is confirmed; False if the term or the
        time ends before."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._synced.append(waiting)
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            return False

    # ---- the task

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                try:
                    pause_s = await self._round()
                except Exception as error:
                    # the next rounds may be of other queues; acknowledgements must continue
                    logger.exception("progress of groups cannot be written: %r", error)
                    pause_s = FAILED_S
                if pause_s:
                    await asyncio.sleep(pause_s)
                    continue
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._stop_listening()
        for waiting in self._synced:
            _answer(waiting, False)
        for _, _, waiters in self._unconfirmed:
            for waiting in waiters:
                _answer(waiting, False)
        self._synced.clear()
        self._unconfirmed.clear()

    async def _round(self) -> float:
        """Write what there is; how long to wait before the next round, 0 as usual."""
        if not self._desk.ready:
            return 0.0
        self._look()
        news = self._engine.has_news or self._engine.has_dead_letters or self._synced
        if not news and not self._forgotten and not self._desk.state_is_due():
            return 0.0
        if not self._may_write():
            return HELD_BACK_S
        try:
            await self._bury()
            await self._write_forgotten()
            await self._write_news()
            if self._desk.state_is_due():
                await self._write_state()
        except StoreError as error:
            logger.warning("progress of groups waits: %s", error)
            return FAILED_S
        return NOT_APPLIED_S if self._forgotten else 0.0

    def _may_write(self) -> bool:
        """Whether a put of a client would be taken now."""
        if self._role.epoch() is None:
            return False
        try:
            self._role.admit(broker_pb2.CLUSTER)
        except RequestRefusedError:
            return False
        return True

    async def _bury(self) -> None:
        """Store the copies of what is given up. Those that cannot be stored are tried again after
        FAILED_S, behind those of other queues."""
        now = asyncio.get_running_loop().time
        if now() < self._letters_from:
            return
        taken = self._engine.take_dead_letters(LETTERS)
        for number, letters in enumerate(taken):
            stored: Sequence[int] = ()
            try:
                stored = await self._run(lambda each=letters: self._letters.bury(each))  # type: ignore[misc]
            except StoreError as error:
                logger.error("dead letters of group %s wait: %s", letters.queue.group, error)
            except BaseException:
                for each in taken[number:]:
                    self._engine.not_buried(each)
                raise
            self._engine.buried(letters.only(stored))
            left = letters.without(stored)
            if len(left.offsets):
                self._engine.not_buried(left)
                self._letters_from = now() + FAILED_S
        if taken:
            self._changed()

    async def _write_forgotten(self) -> None:
        """The last news of groups that the engine has forgotten, and what the log is to forget. No
        other write is under way."""
        for group, forgotten in list(self._forgotten.items()):
            entries: Sequence[QueueProgress] = forgotten.news
            if forgotten.deleted:
                if forgotten.written is None:
                    forgotten.written = self._desk.written
                if not self._desk.has_applied(forgotten.written):
                    continue
                entries = self._desk.dropped(group)
            for part in split(entries, WEIGHT):
                end = await self._run(lambda each=part: self._desk.put_progress(each))  # type: ignore[misc]
                self._unconfirmed.append((end, (), []))
            if self._forgotten.get(group) is forgotten:
                # else the group was deleted meanwhile
                del self._forgotten[group]

    async def _write_news(self) -> None:
        waiters, self._synced = self._synced, []
        self._since = 0
        while news := self._engine.collect(WEIGHT):
            try:
                end = await self._run(lambda each=news: self._desk.put_progress(each))  # type: ignore[misc]
            except BaseException:
                self._put_back(news)
                self._synced = waiters + self._synced
                raise
            self._unconfirmed.append((end, news, []))
        if self._unconfirmed:
            self._unconfirmed[-1][2].extend(waiters)
        else:
            for waiting in waiters:
                _answer(waiting, True)
        self._check_confirmed()

    def _put_back(self, news: Sequence[QueueProgress]) -> None:
        """They were not stored, and come with a later record."""
        for each in self._engine.put_back(news):
            # the engine has forgotten the group meanwhile
            forgotten = self._forgotten.get(each.group)
            if forgotten is not None and not forgotten.deleted:
                forgotten.news.append(each)

    async def _write_state(self) -> None:
        dropped = self._desk.forgotten()
        now_ms = self._store.clock.now_ms()
        if dropped:
            await self._run(lambda: self._desk.put_progress(dropped))
            return  # the next round writes the rest, once that is applied
        await self._run(lambda: self._desk.put_state(now_ms))

    async def _run(self, work: Callable[[], Made]) -> Made:
        """In the thread; a write that has begun is waited for, even if the task is cancelled."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def _confirmed_in(self, loop: asyncio.AbstractEventLoop) -> None:
        # in the thread of the position's owner
        if self._unconfirmed and not loop.is_closed():
            loop.call_soon_threadsafe(self._check_confirmed)

    def _check_confirmed(self) -> None:
        confirmed = self._store.confirmed.value
        while not self._ended and self._unconfirmed and self._unconfirmed[0][0] <= confirmed:
            _, news, waiters = self._unconfirmed.popleft()
            self._engine.confirmed(news)
            for waiting in waiters:
                _answer(waiting, True)
            self._changed()


def _answer(waiting: "asyncio.Future[bool]", outcome: bool) -> None:
    if not waiting.done():
        waiting.set_result(outcome)
