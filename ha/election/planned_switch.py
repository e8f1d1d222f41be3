"""The leader's part in a planned switch: the steps of switchover.py, executed.

A request that this leader has refused is not tried again. While the coordinator is away nothing
begins: a snapshot that is not fresh may show a request that is long over.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from ..config import Replication
from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import (
    CoordinatorError,
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from .key_values import RequestValue
from .keys import ClusterKeys
from .role_host import RoleHost
from .snapshot import Snapshot
from .switchover import HELD_BACK, CannotSwitchError, Switching, switch_target
from .transactions import ask, hand_over

logger = logging.getLogger(__name__)

LOOK_S = 0.01
FRESH_S = 2.0


class PlannedSwitch:
    """See the module. `read_keys` reads the keys again; times are seconds of one clock."""

    def __init__(
        self,
        coordinator: Coordinator,
        keys: ClusterKeys,
        host: RoleHost,
        node_id: str,
        replication: Replication,
        read_keys: Callable[[], Awaitable[Snapshot]],
    ) -> None:
        self.under_way: Switching | None = None
        self._coordinator = coordinator
        self._keys = keys
        self._host = host
        self._node_id = node_id
        self._replication = replication
        self._read_keys = read_keys
        self._refused = ""

    def end(self) -> None:
        """There is no request any more, or no term: puts are accepted again."""
        if self.under_way is not None:
            self.under_way = None
            self._host.hold_puts("")

    async def step(
        self, request: RequestValue, snapshot: Snapshot, age_s: float, now: float, now_ms: int
    ) -> float:
        """Do what is due; how long to wait for the next step. `age_s` is that of the snapshot."""
        if request.request_id == self._refused:
            return 1.0
        try:
            return await self._step(request, snapshot, age_s, now, now_ms)
        except CannotSwitchError as error:
            if not (self.under_way and self.under_way.may_lose(self._replication)):
                self.end()
                self._refused = request.request_id
            logger.warning("the switch was refused: %s", error)
            answer = replace(request, outcome=str(error))
            with suppress(CoordinatorError):
                await self._coordinator.txn(ask(self._keys, snapshot, answer))
                await self._read_keys()
            return 1.0

    async def _step(
        self, request: RequestValue, snapshot: Snapshot, age_s: float, now: float, now_ms: int
    ) -> float:
        if self.under_way is not None and self.under_way.request.request_id != request.request_id:
            self.end()  # what was asked before cannot be executed any more
        if self.under_way is None:
            if age_s > FRESH_S:
                return 1.0
            target = switch_target(snapshot, request)
            logger.info("switching to %s: puts are held back", target.node_id)
            self.under_way = Switching(request, target, now)
            self._host.hold_puts(HELD_BACK)
            return LOOK_S
        chosen = replace(request, target=self.under_way.target.node_id)
        target = switch_target(snapshot, chosen)  # it may have left the set meanwhile
        if self.under_way.too_long(now):
            raise CannotSwitchError(
                f"{target.node_id} did not have the whole log in time; try again when it lags less"
            )
        durable = self._host.durable_on(target.member)
        if not self.under_way.ready(durable, self._host.log_end(), self._host.puts_under_way()):
            return LOOK_S
        if not self._host.tables_sent():
            return LOOK_S
        self.under_way = replace(self.under_way, handed_over=True)
        reason = f"planned switch from {self._node_id}"
        try:
            await self._coordinator.txn(hand_over(self._keys, snapshot, target, reason, now_ms))
        except (CoordinatorUnavailableError, UnknownOutcomeError, LeaseLostError) as error:
            logger.warning("handing over: %s", error)
        with suppress(CoordinatorUnavailableError):
            await self._read_keys()
        return LOOK_S
