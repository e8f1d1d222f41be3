"""What the master does with transactions by itself, and when requests about them may be answered.

    every LOOK_S    finish     messages of committed transactions that are missing
                    checks     of transactions that stay open (check_board.py)
                    give up    those whose last check is over
    once a term     take over  what the last broker says has ended
    now and then    write back what a broker has to know that takes the store over

All appends are made in a thread of its own. As puts of clients they wait where too few replicas are
in sync, or too much of the log is not confirmed. Requests of clients to end a transaction are made
in the same thread, one after the other.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tandemlog.format.constants import BROKER_TRANSACTIONS, HALF_TOPIC, OP_HALF_TOPIC
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.errors import DiskFullError, StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError
from tandemlog_server.storage.services.transaction_desk import TransactionDesk
from tandemlog_server.storage.services.transaction_errors import TransactionDecidedError

from ..error_status import RequestRefusedError
from ..process.tasks import stopped
from ..roles.master_role import MasterRole
from ..settings.sections import TransactionsSection
from .check_board import Asked, CheckBoard

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
FAILED_S: Final = 1.0
READY_S: Final = 5.0
"""How long a request waits for a term that has just begun, and for offsets on their way."""
STEP_S: Final = 0.005

ResultT = TypeVar("ResultT")


class TransactionWork:
    """See the module; lives in the event loop. A TermService. `limits` are the settings."""

    def __init__(
        self, store: MessageStore, desk: TransactionDesk, limits: TransactionsSection
    ) -> None:
        self.limits = limits
        self.desk = desk
        self.board = CheckBoard(threading.Lock())
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transactions")
        self._task: asyncio.Task[None] | None = None
        self._role: MasterRole | None = None
        self._polls: dict[str, list[asyncio.Event]] = {}
        self._taken_over = False

    # ---- terms

    def begin(self, role: MasterRole) -> None:
        self.desk.begin()
        self.board.clear()
        self._role, self._taken_over = role, False
        self._task = asyncio.create_task(self._run(role), name="transactions")

    async def end(self) -> None:
        self._role = None
        if self._task is not None:
            await stopped(self._task)
            self._task = None
        self.desk.end()
        self.board.clear()
        self._wake(list(self._polls))

    def close(self) -> None:
        """No term will begin any more."""
        self._thread.shutdown(wait=True)

    @property
    def leads(self) -> bool:
        """Whether this node is a master, whose word on transactions counts."""
        return self._role is not None

    # ---- requests

    async def ready(self) -> None:
        """Wait until this master knows what was decided. Raises RequestRefusedError."""
        if not await self._wait_for(lambda: self.desk.ready):
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                "this master does not know yet what the last one has decided, since not all of "
                "that is confirmed: try again in a moment",
            )

    async def offsets_settled(self, group: str) -> None:
        """Wait until offsets of this group that a transaction sets are in the table. Raises
        RequestRefusedError. Of a node that is no master nothing is waited for."""
        if self._role is None or self.desk.offsets_known(group):
            return
        if not await self._wait_for(lambda: self.desk.offsets_known(group)):
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"offsets of group {group!r} may be on their way with a transaction that is not "
                "confirmed yet: try again in a moment",
            )

    async def _wait_for(self, condition: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S
        while self._role is not None and not condition():
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(STEP_S)
        return self._role is not None

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """`work` of the desk, behind what was begun before."""
        step = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # an append under way is waited for: the store may be closed next
            await asyncio.wait([step])
            raise

    async def poll(
        self, group: str, limit: int, wait_s: float, may_answer: Callable[[str], bool]
    ) -> list[str]:
        """Transactions of a producer group to be asked about that the caller `may_answer`, at most
        `limit`; waits for the first. The others are left to other callers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not (names := self.board.take(group, limit, may_answer)):
            left_s = deadline - loop.time()
            if left_s <= 0 or self._role is None:
                return []
            news = asyncio.Event()
            self._polls.setdefault(group, []).append(news)
            try:
                async with asyncio.timeout(left_s):
                    await news.wait()
            except TimeoutError:
                continue
            finally:
                waiting = self._polls.get(group, [])
                if news in waiting:
                    waiting.remove(news)
                if not waiting:
                    self._polls.pop(group, None)
        return names

    def _wake(self, groups: list[str]) -> None:
        for group in groups:
            for news in self._polls.get(group, ()):
                news.set()

    def numbers(self) -> dict[str, float]:
        """By the names of metrics."""
        fold, counts = self._store.transactions, self.desk.counts
        with fold.lock:
            count = fold.open_transactions
            first = next(iter(fold.halves.values()), None)
        age_ms = 0 if first is None else self._store.clock.now_ms() - first.store_timestamp
        return {
            "transactions_open": count,
            "transactions_oldest_seconds": max(age_ms, 0) / 1000,
            "transactions_committed_total": counts.committed,
            "transactions_rolled_back_total": counts.rolled_back,
            "transactions_given_up_total": counts.given_up,
            "transactions_checks_total": self.board.checks_total,
            "transactions_finished_total": counts.finished,
        }

    # ---- by itself

    async def _run(self, role: MasterRole) -> None:
        while True:
            pause_s = LOOK_S
            if not role.puts_wait():
                try:
                    await self.in_thread(self._step)
                except StoreError as error:
                    logger.warning("transactions wait: %s", error)
                    pause_s = FAILED_S
                except Exception:
                    # the next look may succeed, and nothing else would end transactions
                    logger.exception("transactions wait")
                    pause_s = FAILED_S
            self._wake(self.board.groups)
            await asyncio.sleep(pause_s)

    def _step(self) -> None:
        desk = self.desk
        if not desk.ready:
            return
        if not self._taken_over:
            desk.take_over()
            self._taken_over = True
            return
        full: DiskFullError | None = None
        try:
            while desk.finish():
                pass
        except DiskFullError as error:
            full = error
        for name in self._exhausted():
            try:
                ended = desk.give_up(name)
            except TransactionDecidedError:
                continue  # a moment ago
            except DiskFullError as error:
                # those in files that retention would delete make room, also behind this one
                full = error
                continue
            if not ended.again:
                logger.warning("transaction %s is rolled back: no producer has decided it", name)
        self._write_back()
        if full is not None:
            raise full

    def _exhausted(self) -> list[str]:
        """Look which checks are due; those that are to be given up."""
        store, fold = self._store, self._store.transactions
        now_ms = store.clock.now_ms()
        with fold.lock:
            firsts = {
                name: halves[0]
                for name, halves in fold.transactions()
                if halves[0].undecided and name not in fold.outcomes
            }
        asked = (
            Asked(
                name, each.half.group, (now_ms - each.store_timestamp) / 1000, each.half.check_times
            )
            for name, each in firsts.items()
        )
        exhausted = self.board.look(asked, self.limits, store.clock.elapsed())
        if self.limits.undecided == "rollback":
            return exhausted
        # as old as the log is kept: not by the clock, which may be wrong
        end = store.retention_waits_for
        return [name for name in exhausted if end is not None and firsts[name].log_offset < end]

    def _write_back(self) -> None:
        """What a broker has to know goes into the table of offsets, where it looks for it."""
        store, fold = self._store, self._store.transactions
        with fold.lock:
            halves, ops = fold.broker_offsets()
        if not halves:
            return
        for topic, offset in ((HALF_TOPIC, halves), (OP_HALF_TOPIC, ops)):
            if store.consumer_offsets.offset(BROKER_TRANSACTIONS, topic, 0) != offset:
                try:
                    store.consumer_offsets.commit(BROKER_TRANSACTIONS, topic, 0, offset)
                except MetadataError as error:
                    logger.warning("offsets for a broker are not noted: %s", error)
