"""Whether puts and pulls go to a node by data connections, or by gRPC.

    pulls   gRPC ──the first answer──▶ open in the background ──▶ data connection
              ▲                               │ fails                    │ ends, late
              └────── again after AGAIN_S ────┴──────────────────────────┘
    puts    each stream has a link of its own; gRPC, to its end, if none opens within WAIT_S

No pull fails because there is no connection, and none waits for one to open unless it was asked
for (always). After a failure, also of a stream or a pull that was never answered, none is tried for
AGAIN_S, or until the node says something else of its data connections: a node that can only be
reached by gRPC, through a mapped port say, costs nothing more. Before another try the node is
asked for its port again, since it may have been restarted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from ..format.constants import Buffer
from ..transport.data_frames import Kind
from .data_link import AVAILABLE, LARGEST_PULL_BYTES, DataLink, DataLinkError, connected

logger = logging.getLogger(__name__)

AGAIN_S = 60.0
WAIT_S = 0.25
Offer: TypeAlias = tuple[int, bytes]
"""Port and key of a node's data connections; port 0: it takes none."""


class DataPath:
    """See the module. Of the node at `host`, which `ask` asks for its offer, None if it does not
    answer. One event loop."""

    def __init__(self, host: str, mode: str, ask: Callable[[], Awaitable[Offer | None]]) -> None:
        self._host = host
        self._mode = mode if AVAILABLE else "never"
        self._ask = ask
        self._offer: Offer = (0, b"")
        self._is_old = False
        self._links: set[DataLink] = set()
        self._pulls: DataLink | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._failed_until = float("-inf")
        self._opened_until = float("-inf")

    def offered(self, port: int, key: bytes) -> None:
        """What the node says of its data connections."""
        self._is_old = False
        if (port, key) != self._offer:
            self._offer = port, key
            self._failed_until = self._opened_until = float("-inf")

    async def pull(self, request: bytes, authorization: str, timeout_s: float) -> Buffer | None:
        """The encoded answer; None if it has to be asked by gRPC. Raises DataStatusError and
        TimeoutError."""
        if self._mode == "always" and self._pulls is None:
            self._begin()
            if self._opening is not None:
                await asyncio.wait([self._opening], timeout=min(WAIT_S, timeout_s))
        if self._pulls is None or len(request) > LARGEST_PULL_BYTES:
            return None
        try:
            return await self._pulls.pull(request, authorization, timeout_s)
        except TimeoutError:
            self._failed("a pull was not answered in time")
            raise
        except DataLinkError as error:
            logger.info("a data connection ended: host=%s reason=%s", self._host, error)
            return None

    async def stream(self) -> DataLink | None:
        """For a stream of puts, which closes it; None if that has to be by gRPC."""
        if not self._may_try():
            return None
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._open(Kind.APPEND)
        except (DataLinkError, TimeoutError) as error:
            self._failed(str(error) or f"no connection within {WAIT_S:g} s")
            return None

    def pull_came_by_grpc(self) -> None:
        """There may be more."""
        if self._mode == "auto":
            self._begin()

    def close(self) -> None:
        self._closed = True
        for link in list(self._links):
            link.close()
        if self._opening is not None:
            self._opening.cancel()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._opening is not None or self._pulls is not None or not self._may_try():
            return
        if loop.time() >= self._opened_until:
            self._opening = loop.create_task(self._connect(), name="tandemlog-data")

    def _may_try(self) -> bool:
        if self._closed or self._mode == "never" or not self._offer[0]:
            return False
        return asyncio.get_running_loop().time() >= self._failed_until

    def _failed(self, reason: str) -> None:
        self._is_old = True
        self._failed_until = asyncio.get_running_loop().time() + AGAIN_S
        logger.info("no data connection, gRPC is used: host=%s reason=%s", self._host, reason)

    async def _connect(self) -> None:
        try:
            if self._is_old and (offer := await self._ask()) is not None:
                self.offered(*offer)
            self._pulls = await self._open(Kind.PULL)
        except DataLinkError as error:
            self._failed(str(error))
        else:
            # one that ends again and again is not opened each time
            self._opened_until = asyncio.get_running_loop().time() + AGAIN_S
        finally:
            self._opening = None

    async def _open(self, kind: Kind) -> DataLink:
        """Raises DataLinkError."""
        link = DataLink(kind, partial(connected, self._host, *self._offer), self._ended)
        await link.opened()
        if self._closed:
            link.close()
            raise DataLinkError("the client is closed")
        self._links.add(link)
        return link

    def _ended(self, link: DataLink) -> None:
        self._links.discard(link)
        self._is_old = True
        if link is self._pulls:
            self._pulls = None
        elif link.kind is Kind.APPEND and not link.answered:
            self._failed("a stream of puts had no answer")
