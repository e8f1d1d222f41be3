"""Leases of push consumers, which name no time: they last while the client lives.

    receive ─▶ RENEWED_MS ─▶ renewed every LOOK_S while the client's last heartbeat is younger than
                             ALIVE_S, for MOST_S at the most ─▶ the lease ends
    settled, or given up ─▶ forgotten here          the client says goodbye ─▶ given back

It is memory of the master alone: the next master renews what it has delivered itself, and waits for
a while before it delivers again what the log says was tried (node/work).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tandemlog.format.lease.policy import MAX_HANDLES, AckResult
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError

from ..error_status import RequestRefusedError
from ..work.work_service import WorkService

logger = logging.getLogger(__name__)

RENEWED_MS: Final = 60_000
LOOK_S: Final = 15.0
ALIVE_S: Final = 30.0
"""Clients send a heartbeat every 10 s."""
MOST_S: Final = 3 * 3_600.0
GOODBYE_MS: Final = 1_000
"""Until what an ended client had comes again."""
CLIENTS_KEPT: Final = 65_536


@dataclass(slots=True)
class _Client:
    heard_at: float
    leases: dict[str, tuple[str, float]] = field(default_factory=dict)
    """handle -> group, and since when it is leased."""
    holder: str = ""


class RenewedLeases:
    """See the module. `now` in seconds of a monotonic clock, `term` is None where this node does
    not lead. Belongs to the loop."""

    def __init__(
        self, work: WorkService, term: Callable[[], int | None], now: Callable[[], float]
    ) -> None:
        self._work = work
        self._term_now = term
        self._now = now
        self._term: int | None = None
        self._clients: dict[str, _Client] = {}

    @property
    def count(self) -> int:
        """How many leases are renewed."""
        return sum(len(each.leases) for each in self._clients.values())

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # else leases would end while their messages are worked on
                logger.exception("leases of push consumers are not renewed this time")

    def heard(self, client_id: str) -> None:
        """A heartbeat, or a receive."""
        self._look_at_term()
        client = self._clients.pop(client_id, None) or _Client(0.0)
        client.heard_at = self._now()
        # the last one is the one that was heard of most recently
        self._clients[client_id] = client
        while len(self._clients) > CLIENTS_KEPT:
            del self._clients[next(iter(self._clients))]

    def add(self, client_id: str, group: str, handles: Iterable[str], holder: str) -> None:
        """The client has these now."""
        self.heard(client_id)
        client, now = self._clients[client_id], self._now()
        client.holder = holder
        client.leases.update((each, (group, now)) for each in handles)

    def forget(self, client_id: str, handles: Iterable[str]) -> None:
        """They are settled, or have a time of their own."""
        client = self._clients.get(client_id)
        if client is not None:
            for each in handles:
                client.leases.pop(each, None)

    async def goodbye(self, client_id: str) -> None:
        """The client ends: what it still has comes again soon."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        for group, handles in _by_group(client):
            try:
                await self._work.nack(
                    group, _joined(handles), delay_ms=GOODBYE_MS, holder=client.holder
                )
            except (RequestRefusedError, MessagingRefusedError) as error:
                logger.info("leases of an ended client of group %s end later: %s", group, error)

    async def look(self) -> None:
        """Renew the leases of clients that live, and forget those of others."""
        self._look_at_term()
        now = self._now()
        for name, client in list(self._clients.items()):
            if now - client.heard_at > ALIVE_S:
                del self._clients[name]
                continue
            for handle in [
                each for each, (_, since) in client.leases.items() if now - since > MOST_S
            ]:
                del client.leases[handle]
            for group, handles in _by_group(client):
                await self._renew(client, group, handles)

    async def _renew(self, client: _Client, group: str, handles: Sequence[str]) -> None:
        for first in range(0, len(handles), MAX_HANDLES):
            part = handles[first : first + MAX_HANDLES]
            try:
                results = await self._work.extend(
                    group, _joined(part), RENEWED_MS, holder=client.holder
                )
            except RequestRefusedError as error:
                logger.info("leases of group %s are not renewed this time: %s", group, error)
                return
            for handle, result in zip(part, results.tolist(), strict=True):
                if result != AckResult.OK:
                    client.leases.pop(handle, None)

    def _look_at_term(self) -> None:
        term = self._term_now()
        if term != self._term:
            self._term = term
            self._clients.clear()


def _by_group(client: _Client) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for handle, (group, _) in client.leases.items():
        groups.setdefault(group, []).append(handle)
    return list(groups.items())


def _joined(handles: Sequence[str]) -> bytes:
    return "".join(handles).encode()
