"""Leases of push consumers, which name no time: they last while the client lives.

    receive ─▶ RENEWED_MS ─▶ renewed every LOOK_S while the client's last heartbeat is younger than
                             ALIVE_S, for MOST_S at the most ─▶ the lease ends
    settled, or given up ─▶ forgotten here          the client says goodbye ─▶ given back

A client is its identity and its id: any program may say the id of another one, so what it says
counts for the clients of its own identity alone. When there is no room, the longest silent client
of the identity with the most clients is forgotten.

It is memory of the master alone: the next master renews what it has delivered itself, and waits for
a while before it delivers again what the log says was tried (node/work).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tandemlog.format.lease.policy import MAX_HANDLES, AckResult
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError

from ..error_status import RequestRefusedError
from ..work.work_service import WorkService
from .messaging_call import MessagingCall

logger = logging.getLogger(__name__)

RENEWED_MS: Final = 60_000
LOOK_S: Final = 15.0
ALIVE_S: Final = 30.0
"""Clients send a heartbeat every 10 s."""
MOST_S: Final = 3 * 3_600.0
GOODBYE_MS: Final = 1_000
"""Until what an ended client had comes again."""
CLIENTS_KEPT: Final = 65_536


class Who(NamedTuple):
    """`identity` is empty where callers have none; not their host, since clients come by way of
    other nodes."""

    identity: str
    client_id: str


def who_of(call: MessagingCall) -> Who:
    return Who(call.caller.name, call.client_id)


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
        self,
        work: WorkService,
        term: Callable[[], int | None],
        now: Callable[[], float],
        most_clients: int = CLIENTS_KEPT,
    ) -> None:
        self._work = work
        self._term_now = term
        self._now = now
        self._most_clients = most_clients
        self._term: int | None = None
        self._clients: dict[str, dict[str, _Client]] = {}
        """By identity and client id; the last of an identity was heard of most recently."""
        self._kept = 0

    @property
    def count(self) -> int:
        """How many leases are renewed."""
        return sum(len(each.leases) for _, each in self._all())

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # else leases would end while their messages are worked on
                logger.exception("leases of push consumers are not renewed this time")

    def heard(self, who: Who) -> None:
        """A heartbeat: of a client without leases there is nothing to remember."""
        self._look_at_term()
        client = self._take_out(who)
        if client is not None:
            self._put_in(who, client)

    def add(self, who: Who, group: str, handles: Iterable[str], holder: str) -> None:
        """The client has these now."""
        self._look_at_term()
        client, now = self._take_out(who) or _Client(0.0), self._now()
        client.holder = holder
        client.leases.update((each, (group, now)) for each in handles)
        self._put_in(who, client)

    def forget(self, who: Who, handles: Iterable[str]) -> None:
        """They are settled, or have a time of their own."""
        client = self._clients.get(who.identity, {}).get(who.client_id)
        if client is not None:
            for each in handles:
                client.leases.pop(each, None)

    async def goodbye(self, who: Who) -> None:
        """The client ends: what it still has comes again soon."""
        client = self._take_out(who)
        if client is None:
            return
        for group, handles in _by_group(client):
            for part in _parts(handles):
                try:
                    await self._work.nack(
                        group, _joined(part), delay_ms=GOODBYE_MS, holder=client.holder
                    )
                except (RequestRefusedError, MessagingRefusedError) as error:
                    logger.info("leases of an ended client of group %s end later: %s", group, error)

    async def look(self) -> None:
        """Renew the leases of clients that live, and forget those of others."""
        self._look_at_term()
        now = self._now()
        for who, client in self._all():
            for handle in [
                each for each, (_, since) in client.leases.items() if now - since > MOST_S
            ]:
                del client.leases[handle]
            if not client.leases or now - client.heard_at > ALIVE_S:
                self._take_out(who)
                continue
            for group, handles in _by_group(client):
                await self._renew(client, group, handles)

    # ---- the clients

    def _all(self) -> list[tuple[Who, _Client]]:
        return [
            (Who(identity, client_id), client)
            for identity, clients in self._clients.items()
            for client_id, client in clients.items()
        ]

    def _put_in(self, who: Who, client: _Client) -> None:
        client.heard_at = self._now()
        self._clients.setdefault(who.identity, {})[who.client_id] = client
        self._kept += 1
        if self._kept > self._most_clients:
            most = max(self._clients, key=lambda each: len(self._clients[each]))
            self._take_out(Who(most, next(iter(self._clients[most]))))

    def _take_out(self, who: Who) -> _Client | None:
        clients = self._clients.get(who.identity, {})
        client = clients.pop(who.client_id, None)
        if client is not None:
            self._kept -= 1
            if not clients:
                del self._clients[who.identity]
        return client

    async def _renew(self, client: _Client, group: str, handles: Sequence[str]) -> None:
        for part in _parts(handles):
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
            self._kept = 0


def _by_group(client: _Client) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for handle, (group, _) in client.leases.items():
        groups.setdefault(group, []).append(handle)
    return list(groups.items())


def _parts(handles: Sequence[str]) -> list[Sequence[str]]:
    return [handles[at : at + MAX_HANDLES] for at in range(0, len(handles), MAX_HANDLES)]


def _joined(handles: Sequence[str]) -> bytes:
    return "".join(handles).encode()
