"""The client of etcd, and of the embedded coordinator, which speaks the same.

    call ─▶ attempt at the present endpoint ─▶ answer
               │ ELSEWHERE, or AMBIGUOUS and only a read: the next endpoint, until budget_s is over
               │ AMBIGUOUS and a change: UnknownOutcomeError at once; the next call goes elsewhere
               │ TOKEN: log in again, unless another call has done so, and repeat it once
               └ REFUSED: CoordinatorRefusedError        LEASE_LOST: LeaseLostError

All calls share the present endpoint: the first call that fails there moves all to the next.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from tandemlog.v1 import coordinator_pb2 as pb

from .attempts import Attempts
from .coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from .etcd_messages import found, listing, range_request, txn_request, txn_result
from .methods import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE, STATUS, TXN
from .options import CoordinatorOptions
from .rotation import Rotation
from .values import Found, KeyRange, Lease, Listing, Put, Txn, TxnResult, WatchUpdate
from .verdicts import AttemptError, Verdict
from .watching import Watching

T = TypeVar("T")

EMBEDDED, ETCD = "embedded", "etcd"
EMBEDDED_MARK = "tandemlog"
"""In the version that the embedded coordinator tells."""


def since_boot() -> float:
    """Seconds, counted also while the machine sleeps: what is left of a lease is counted by it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class EtcdCoordinator:
    """A Coordinator over gRPC. One event loop; nothing is connected before the first call.

    `monotonic` gives the `t_sent` of leases, in seconds; `pause` waits between attempts.
    """

    def __init__(
        self,
        options: CoordinatorOptions,
        *,
        monotonic: Callable[[], float] = since_boot,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._pause = pause
        self._attempts = Attempts(options, monotonic)
        self._rotation = Rotation(options.endpoints)
        self._watches: set[Watching] = set()
        self._closed = False

    async def get(self, key: bytes) -> Found:
        """See Coordinator."""
        return found(await self._read(KeyRange(key)))

    async def range(self, keys: KeyRange) -> Listing:
        """See Coordinator."""
        return listing(await self._read(keys))

    async def txn(self, txn: Txn) -> TxnResult:
        """See Coordinator."""
        request = txn_request(txn)
        changes = _first_key(txn) if txn.may_write else b""

        async def once(endpoint: str, seconds: float) -> pb.TxnResponse:
            return await self._attempts.unary(
                endpoint, TXN, request, seconds=seconds, changes=changes
            )

        try:
            answer = await self._somewhere("txn", once, changes=txn.may_write)
        except AttemptError as error:
            raise LeaseLostError(_first_lease(txn), str(error)) from error
        return txn_result(answer)

    async def grant_lease(self, ttl_s: int) -> Lease:
        """See Coordinator."""
        request = pb.LeaseGrantRequest(TTL=ttl_s)

        async def once(endpoint: str, seconds: float) -> Lease:
            sent = self._monotonic()
            answer = await self._attempts.unary(
                endpoint, LEASE_GRANT, request, seconds=seconds, linearizable=False
            )
            return Lease(answer.ID, answer.TTL, sent)

        return await self._somewhere("grant_lease", once)

    async def keep_alive(self, lease_id: int) -> Lease:
        """See Coordinator."""
        request = pb.LeaseKeepAliveRequest(ID=lease_id)

        async def once(endpoint: str, seconds: float) -> Lease:
            answer, sent = await self._attempts.keep_alive(
                endpoint, LEASE_KEEP_ALIVE, request, seconds=seconds
            )
            return Lease(lease_id, answer.TTL, sent)

        try:
            lease = await self._somewhere("keep_alive", once)
        except AttemptError as error:
            raise LeaseLostError(lease_id, str(error)) from error
        if lease.ttl_s <= 0:
            raise LeaseLostError(lease_id)
        return lease

    async def revoke_lease(self, lease_id: int) -> None:
        """See Coordinator."""
        request = pb.LeaseRevokeRequest(ID=lease_id)

        async def once(endpoint: str, seconds: float) -> None:
            await self._attempts.unary(
                endpoint, LEASE_REVOKE, request, seconds=seconds, linearizable=False
            )

        try:
            await self._somewhere("revoke_lease", once)
        except AttemptError:
            return  # the lease has ended, perhaps by an attempt whose answer was lost

    async def watch(self, keys: KeyRange, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        """See Coordinator. Raises ValueError for a revision below 1."""
        if from_revision < 1:
            raise ValueError(f"a watch begins at a revision of at least 1, not {from_revision}")
        watching = Watching(
            keys, from_revision, self._attempts, self._rotation, self._options, self._pause
        )
        self._watches.add(watching)
        try:
            while not self._closed:
                async with aclosing(watching.updates()) as updates:
                    async for update in updates:
                        yield update
                if not watching.compacted or self._closed:
                    continue
                try:
                    everything = await self.range(keys)
                except CoordinatorRefusedError:
                    raise
                except CoordinatorUnavailableError:
                    await self._pause(self._options.pause_s)
                    continue
                watching.relisted(everything.revision)
                yield everything
        finally:
            self._watches.discard(watching)
            watching.end()

    async def close(self) -> None:
        """See Coordinator."""
        self._closed = True
        for each in list(self._watches):
            each.end()
        await self._attempts.close()

    async def product(self) -> str:
        """Which coordinator it is: EMBEDDED or ETCD. Raises CoordinatorUnavailableError."""

        async def once(endpoint: str, seconds: float) -> pb.StatusResponse:
            return await self._attempts.unary(endpoint, STATUS, pb.StatusRequest(), seconds=seconds)

        answer = await self._somewhere("status", once)
        return EMBEDDED if EMBEDDED_MARK in answer.version else ETCD

    async def _read(self, keys: KeyRange) -> pb.RangeResponse:
        request = range_request(keys)

        async def once(endpoint: str, seconds: float) -> pb.RangeResponse:
            return await self._attempts.unary(endpoint, RANGE, request, seconds=seconds)

        return await self._somewhere("range", once)

    async def _somewhere(
        self, what: str, once: Callable[[str, float], Awaitable[T]], *, changes: bool = False
    ) -> T:
        """The answer of the first endpoint that gives one. `changes`: it is sent once at most.

        Raises the errors of the module, and AttemptError where the lease does not exist.
        """
        until = self._monotonic() + self._options.budget_s
        reasons: dict[str, None] = {}  # in the order in which they came up
        logged_in_again = False
        while not self._closed:
            endpoint = self._rotation.current
            seconds = min(self._options.attempt_s, until - self._monotonic())
            try:
                return await once(endpoint, seconds)
            except AttemptError as error:
                if error.verdict is Verdict.LEASE_LOST:
                    raise
                if error.verdict is Verdict.TOKEN and not logged_in_again:
                    logged_in_again = True
                    continue
                if error.verdict in (Verdict.REFUSED, Verdict.TOKEN):
                    raise CoordinatorRefusedError(f"{what} is refused: {error}") from error
                self._rotation.leave(endpoint)
                if changes and error.verdict is Verdict.AMBIGUOUS:
                    raise UnknownOutcomeError(
                        f"{what} was sent and not answered, it may be applied: {error}"
                    ) from error
                reasons[str(error)] = None
            if self._rotation.round_ended:
                await self._pause(self._options.pause_s)
            if self._monotonic() >= until:
                break
        why = "; ".join(reasons) or "this client is closed"
        raise CoordinatorUnavailableError(f"the coordinator is unavailable: {why}")


def connect(options: CoordinatorOptions) -> EtcdCoordinator:
    """The coordinator at `options.endpoints`; nothing is sent yet. To be closed by the caller."""
    return EtcdCoordinator(options)


def _first_key(txn: Txn) -> bytes:
    """A key of the transaction, for which the user has rights."""
    for compare in txn.compares:
        return compare.key
    for each in (*txn.then, *txn.otherwise):
        return each.key if isinstance(each, Put) else each.keys.start
    return b""


def _first_lease(txn: Txn) -> int:
    puts = (each for each in (*txn.then, *txn.otherwise) if isinstance(each, Put))
    return next((each.lease for each in puts if each.lease), 0)
