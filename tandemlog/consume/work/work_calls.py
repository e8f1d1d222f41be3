"""The calls of a work queue, each to the master: of the newest epoch, found again if it changes.

    receive        leases messages; waits for the first one
    settle         ack, nack, release, reject: many handles in one request
    extend         more time
    set_policy     if the group has another policy than the program wants

A handle is good for every master, so a request that failed is sent to the next one unchanged.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...cluster.connection import Connection
from ...cluster.node import Node
from ...errors import (
    InvalidArgumentError,
    OutcomeUnknownError,
    TandemlogError,
    UnknownGroupError,
)
from ...format.lease.policy import GroupPolicy
from ...v1 import work_pb2
from ..group.group_admin import NOT_KNOWN_THERE
from .policy_messages import policy_of, policy_request
from .work_options import WantedPolicy

ResultT = TypeVar("ResultT")

SILENCE_MS: Final = 5_000
"""Of a node behind the time that it may wait: a longer one is away, and another may lead."""


def may_pass(error: TandemlogError) -> bool:
    """Whether the same request may succeed later: all of them may be repeated, also those whose
    outcome is not known."""
    return error.retryable or isinstance(error, OutcomeUnknownError)


class WorkCalls:
    """Of one group; one event loop."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self.group = group

    @property
    def retry_timeout_ms(self) -> int:
        return self._connection.options.retry_timeout_ms

    @property
    def _timeout_ms(self) -> int:
        return self._connection.options.request_timeout_ms

    @property
    def newest_epoch(self) -> int:
        """Of all answers so far; one of a lower epoch is not believed any more."""
        return self._connection.epochs.value

    def check_loop(self) -> None:
        """Raises EventLoopError in another event loop than the client's."""
        self._connection.check_loop()

    async def receive(self, request: work_pb2.ReceiveRequest) -> work_pb2.ReceiveResponse:
        """Raises the error of the call; asked once of each master."""
        silence_ms = min(self._timeout_ms, SILENCE_MS)

        async def ask(node: Node) -> work_pb2.ReceiveResponse:
            return await node.ask(node.work.Receive, request, request.wait_ms + silence_ms)

        return await self.on_master(ask)

    async def settle(self, method: str, request: Any) -> tuple[bytes, bool]:
        """The result of each handle, one byte; and whether the request was sent more than once, so
        that an earlier one may have been carried out."""
        asked = 0

        async def ask(node: Node) -> work_pb2.HandlesResponse:
            nonlocal asked
            asked += 1
            return await node.ask(getattr(node.work, method), request, self._timeout_ms)

        response = await self.on_master(ask)
        return response.results, asked > 1

    async def on_master(self, ask: Callable[[Node], Awaitable[ResultT]]) -> ResultT:
        """As Connection.on_master; raises InvalidArgumentError with a clear sentence where the
        master is too old."""
        try:
            return await self._connection.on_master(ask)
        except InvalidArgumentError as error:
            if error.reason != NOT_KNOWN_THERE:
                raise
            raise InvalidArgumentError(
                f"the master is too old for work queues (group {self.group!r}): update the nodes, "
                f"or read with Consumer.follow ({error})",
                field="group",
                reason=error.reason,
            ) from error

    async def policy(self) -> GroupPolicy | None:
        """The group's; None if there is no such group yet."""
        request = work_pb2.DescribeGroupWorkRequest(group=self.group)
        try:
            answer = await self.on_master(
                lambda node: node.ask(node.work.DescribeGroupWork, request, self._timeout_ms)
            )
        except UnknownGroupError:
            return None
        return policy_of(answer.policy)

    async def want_policy(self, wanted: WantedPolicy) -> None:
        """Changes the group's policy if it is another one than wanted."""
        if wanted == WantedPolicy():
            return
        before = await self.policy()
        if before is not None and wanted.on(before) == before:
            return
        await self.set_policy(wanted)

    async def set_policy(
        self, wanted: WantedPolicy, *, dry_run: bool = False
    ) -> tuple[GroupPolicy, GroupPolicy]:
        """Before and after."""
        request = policy_request(self.group, wanted, dry_run=dry_run)
        answer = await self.on_master(
            lambda node: node.ask(node.work.SetGroupPolicy, request, self._timeout_ms)
        )
        return policy_of(answer.before), policy_of(answer.policy)


def receive_request(
    group: str,
    topics: Sequence[str],
    count: int,
    *,
    lease_ms: int,
    wait_ms: int,
    max_bytes: int,
    tags: Iterable[str],
    where: str,
) -> work_pb2.ReceiveRequest:
    return work_pb2.ReceiveRequest(
        group=group,
        topics=topics,
        max_messages=count,
        max_bytes=max_bytes,
        lease_ms=lease_ms,
        wait_ms=wait_ms,
        tags=tags,
        filter=where,
    )
