"""What both faces of the producer share: everything but how a caller waits.

face (caller's thread)            core (event loop)
  frame, queue, add ────────────▶ accumulator ─▶ sender ─▶ master
  routes.get                      routes.load, and again every route_max_age_ms
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ..cluster.connection import Connection
from ..hooks import Hooks
from ..lazy import lazy
from ..telemetry.outages import call_back
from ..telemetry.producer_statistics import ProducerStatistics
from .accumulator import FutureGroup
from .chain import Numbers
from .framing import Framer
from .producer_options import ProducerOptions
from .request_pipeline import RequestPipeline
from .sender import RequestOptions, Sender

if TYPE_CHECKING:
    from . import transaction_checks, transactions
else:
    transaction_checks = lazy(f"{__package__}.transaction_checks")
    transactions = lazy(f"{__package__}.transactions")

FutureT = TypeVar("FutureT")


class ProducerCore(Generic[FutureT]):
    """Made and closed in the event loop that owns it. `wake` is called from any thread and must
    have `send_due` called in the loop."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        options: ProducerOptions,
        *,
        new_group: Callable[[], FutureGroup[FutureT]],
        wake: Callable[[], object],
    ) -> None:
        self.options = options
        self.connection = Connection(endpoints, options.connection)
        self.numbers = _numbers(options)
        self._own_group = f"producer-{os.urandom(8).hex()}"
        self.hooks = Hooks(options.hooks)
        self.requests: RequestPipeline[FutureT] = RequestPipeline(
            self.connection,
            RequestOptions(
                batch_bytes=options.batch_bytes,
                answer_seconds=options.answer_timeout_ms / 1000,
                linger_seconds=options.linger_ms / 1000,
                delivery_seconds=options.delivery_timeout_ms / 1000,
                max_in_flight_bytes=options.max_in_flight_bytes,
                max_in_flight_requests=options.max_in_flight_requests,
                compress_above=options.compress_above,
                unique_ids=options.unique_ids,
                hooks=self.hooks if self.hooks.hear_of_requests else None,
            ),
            self.numbers,
            named=options.producer_id is not None,
            new_group=new_group,
            wake=wake,
        )
        self.routes = self.requests.routes
        self.accumulator = self.requests.accumulator
        self._refresher: asyncio.Task[None] | None = None
        self._reporter: asyncio.Task[None] | None = None
        self._checks: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Finds the master and learns the cluster's limits; raises NoMasterError if no node reports
        that it is the master for retry_timeout_ms."""
        try:
            await self.requests.open()
        except BaseException:
            await self.connection.close()
            raise
        self._refresher = asyncio.get_running_loop().create_task(
            self._refresh_routes(), name="tandemlog-routes"
        )

        if self.options.on_statistics is not None:
            self._reporter = asyncio.get_running_loop().create_task(
                self._report(), name="tandemlog-statistics"
            )

        if (checker := self.options.transaction_checker) is not None:
            answering = transaction_checks.TransactionChecks(
                self.connection, self.transaction_group, checker
            )
            self._checks = asyncio.get_running_loop().create_task(
                answering.run(), name="tandemlog-transaction-checks"
            )

    @property
    def transaction_group(self) -> str:
        """As which it may be asked about its transactions."""
        options = self.options
        return options.transaction_group or options.producer_id or self._own_group

    def new_transaction(self) -> "transactions.TransactionState":
        """One that has nothing yet."""
        checked = self.options.transaction_checker is not None
        return transactions.TransactionState(
            self.connection, self.transaction_group, checked=checked
        )

    def statistics(self) -> ProducerStatistics:
        """Once open; any thread."""
        sender = self.requests.sender
        assert sender is not None
        return sender.statistics()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self.options.statistics_interval_ms / 1000)
            call_back(self.options.on_statistics, self.statistics())

    async def close(self, seconds: float) -> None:
        """Sends what is there, at most `seconds` long, and closes the connection."""
        for task in (self._refresher, self._reporter, self._checks):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.requests.close(seconds)
        await self.connection.close()

    def send_due(self) -> None:
        """In the loop, after a wake."""
        self.requests.send_due()

    def new_framer(self) -> Framer:
        """For one thread."""
        return self.requests.new_framer()

    @property
    def sender(self) -> Sender | None:
        """What sends, once open."""
        return self.requests.sender

    @property
    def max_batch_bytes(self) -> int:
        """Of a request that the producer makes."""
        return self.accumulator.batch_bytes

    @staticmethod
    def now() -> float:
        """The clock of all deadlines."""
        return time.monotonic()

    def new_deadline(self) -> float:
        """When the outcome of a request that is made now must be known."""
        return time.monotonic() + self.options.delivery_timeout_ms / 1000

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.options.route_max_age_ms / 1000)
            await self.routes.refresh()


def _numbers(options: ProducerOptions) -> Numbers:
    if not options.idempotent:
        return Numbers(None)
    if options.producer_id is None:
        return Numbers(os.urandom(8).hex())
    if options.epoch is not None:
        return Numbers(options.producer_id, epoch=options.epoch, fixed=True)
    return Numbers(options.producer_id, epoch=-1, agreed=False)
