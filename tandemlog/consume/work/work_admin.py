"""Work queues from outside: the policy of a group, what is under way, and its dead letters.

    policy   attempts, pauses, order                  of the group; changed by the master
    work     leases, retries, attempts of each queue  by the master's word
    dead     list ─▶ read ─▶ resend, purge            the topic %DLQ%group

A resend is not repeated by itself when its outcome is not known: it would send the messages twice.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from ...cluster.connection import Connection
from ...cluster.connection_options import ConnectionOptions, secured
from ...cluster.node import Node
from ...errors import InvalidArgumentError, NodeUnavailableError, OutcomeUnknownError
from ...forks import inherited, watch
from ...format.calls import MAX_ROWS
from ...format.constants import group_fault
from ...format.lease.policy import GroupPolicy
from ...transport.security import Security
from ...v1 import work_pb2
from ..received.received_message import ReceivedMessage
from .policy_messages import policy_of
from .work_calls import WorkCalls
from .work_options import BackoffLike, WantedPolicy

ResultT = TypeVar("ResultT")

RESENT_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class QueueWork:
    """What a group has under way in a queue. Offsets are queue offsets: all messages before `floor`
    are done, `next_offset` is the first that was not delivered yet. `leased`: a consumer has them;
    `waiting_retry`: a pause before the next attempt; `ready`: they come again now; `unacked`:
    delivered and not done; `oldest_unacked_ms`: when the oldest of these was first delivered, ms
    since the epoch, None if there is none."""

    topic: str
    queue_id: int
    floor: int
    next_offset: int
    max_offset: int
    leased: int
    waiting_retry: int
    ready: int
    unacked: int
    oldest_unacked_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupWork:
    """What a group has under way, over all its queues: see QueueWork. `dead`: messages on their way
    to the dead letters; `dead_letters`: those that are there; `attempts[n]`: how many messages that
    are not done were delivered n + 1 times."""

    group: str
    policy: GroupPolicy
    leased: int
    waiting_retry: int
    ready: int
    dead: int
    dead_letters: int
    oldest_unacked_ms: int | None
    attempts: tuple[int, ...]
    queues: tuple[QueueWork, ...]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A group's policy before and after."""

    before: GroupPolicy
    after: GroupPolicy


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that came too often, or was rejected. `queue_offset`: its number among the dead
    letters of its group; `origin_…`: the message (-1 or empty: not known). Times in ms since the
    epoch, 0 if not known; `size` in bytes of its record."""

    queue_offset: int
    origin_topic: str
    origin_queue_id: int
    origin_queue_offset: int
    origin_message_id: str
    attempts: int
    last_error: str
    first_attempt_ms: int
    last_attempt_ms: int
    store_timestamp: int
    size: int
    keys: str


@dataclass(frozen=True, slots=True)
class ResentLetter:
    """A dead letter that was sent to `topic` once more; `refusal`: why not, empty if it was."""

    queue_offset: int
    topic: str
    refusal: str


class AsyncWorkAdmin:
    """Administers the work queues of the cluster that `endpoints` belong to: policies of groups,
    and dead letters."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        self._connection = Connection(endpoints, secured(connection, security))
        self._timeout_ms = self._connection.options.request_timeout_ms
        watch(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        if not inherited(self):
            await self._connection.close()

    async def group_work(self, group: str) -> GroupWork:
        """What the group has under way, by the master's word. Raises UnknownGroupError."""
        request = work_pb2.DescribeGroupWorkRequest(group=group)
        answer = await self._calls(group).on_master(
            lambda node: node.ask(node.work.DescribeGroupWork, request, self._timeout_ms)
        )
        return GroupWork(
            group,
            policy_of(answer.policy),
            answer.leased,
            answer.waiting_retry,
            answer.ready,
            answer.dead,
            answer.dead_letters,
            answer.oldest_unacked_ms or None,
            tuple(answer.attempts),
            tuple(map(_queue, answer.queues)),
        )

    async def set_policy(
        self,
        group: str,
        *,
        max_attempts: int | None = None,
        backoff: BackoffLike | None = None,
        ordered: bool | str | None = None,
        start: str | None = None,
        dry_run: bool = False,
    ) -> PolicyChange:
        """Changes how a group works, for all its consumers; see Consumer.work for the values. None
        leaves what there is; a group that does not exist is created. With `dry_run` nothing is
        changed."""
        wanted = WantedPolicy.of(max_attempts, backoff, ordered, start)
        before, after = await self._calls(group).set_policy(wanted, dry_run=dry_run)
        return PolicyChange(before, after)

    async def dead_letters(
        self, group: str, *, first: int = 0, count: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a group from number `first` on, oldest first; at most `count` (None:
        all). Raises UnknownGroupError."""
        found: list[DeadLetter] = []
        while count is None or len(found) < count:
            request = work_pb2.ListDeadLettersRequest(
                group=group,
                from_offset=first,
                count=0 if count is None else min(count - len(found), MAX_ROWS),
            )
            answer = await self._list(request)
            found += map(_letter, answer.letters)
            if answer.next_offset <= first or answer.next_offset >= answer.max_offset:
                break
            first = answer.next_offset
        return found

    async def dead_letter(self, group: str, queue_offset: int) -> ReceivedMessage:
        """The dead letter with this number, as it lies in the group's topic of dead letters. Raises
        OffsetOutOfRangeError."""
        request = work_pb2.ReadDeadLetterRequest(group=group, queue_offset=queue_offset)
        answer = await self._calls(group).on_master(
            lambda node: node.ask(node.work.ReadDeadLetter, request, self._timeout_ms)
        )
        return ReceivedMessage(answer.record, 0, len(answer.record))

    async def resend_dead_letters(
        self, group: str, queue_offsets: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[ResentLetter]:
        """Sends a copy of each of these dead letters (None: of all) to the topic that it came from;
        it is not a dead letter any more. With `dry_run` nothing is sent. Raises OutcomeUnknownError
        if the master gave no answer: some may have been sent."""
        if queue_offsets is None:
            letters = await self.dead_letters(group)
            queue_offsets = [each.queue_offset for each in letters]
        sent: list[ResentLetter] = []
        for begin in range(0, len(queue_offsets), RESENT_AT_ONCE):
            part = queue_offsets[begin : begin + RESENT_AT_ONCE]
            request = work_pb2.ResendDeadLettersRequest(
                group=group, queue_offsets=part, dry_run=dry_run
            )
            ask = _once(self._resend(request), group, repeatable=dry_run)
            answer = await self._calls(group).on_master(ask)
            sent += [
                ResentLetter(each.queue_offset, each.topic, each.refusal) for each in answer.letters
            ]
        return sent

    async def purge_dead_letters(
        self, group: str, before: int | None = None, *, dry_run: bool = False
    ) -> int:
        """Forgets the dead letters with numbers below `before` (None: all that are there), and
        returns how many. Their records go with their log files. With `dry_run` nothing is
        forgotten."""
        if before is None:
            before = (await self._list(work_pb2.ListDeadLettersRequest(group=group))).max_offset
        request = work_pb2.PurgeDeadLettersRequest(
            group=group, before_offset=before, dry_run=dry_run
        )
        answer = await self._calls(group).on_master(
            lambda node: node.ask(node.work.PurgeDeadLetters, request, self._timeout_ms)
        )
        return answer.count

    async def _list(
        self, request: work_pb2.ListDeadLettersRequest
    ) -> work_pb2.ListDeadLettersResponse:
        return await self._calls(request.group).on_master(
            lambda node: node.ask(node.work.ListDeadLetters, request, self._timeout_ms)
        )

    def _resend(
        self, request: work_pb2.ResendDeadLettersRequest
    ) -> Callable[[Node], Awaitable[work_pb2.ResendDeadLettersResponse]]:
        return lambda node: node.ask(node.work.ResendDeadLetters, request, self._timeout_ms)

    def _calls(self, group: str) -> WorkCalls:
        fault = group_fault(group, new=False)
        if fault is not None:
            raise InvalidArgumentError(f"group {group!r}: {fault}", field="group")
        return WorkCalls(self._connection, group)


def _once(
    ask: Callable[[Node], Awaitable[ResultT]], group: str, *, repeatable: bool
) -> Callable[[Node], Awaitable[ResultT]]:
    """`ask`, whose failure without an answer is not repeated."""

    async def ask_once(node: Node) -> ResultT:
        try:
            return await ask(node)
        except NodeUnavailableError as error:
            if repeatable:
                raise
            raise OutcomeUnknownError(
                f"dead letters of group {group!r}: some may have been sent; look into their topics "
                f"before you send them again ({error})"
            ) from error

    return ask_once


def _queue(row: work_pb2.QueueWork) -> QueueWork:
    return QueueWork(
        row.topic,
        row.queue_id,
        row.floor,
        row.next_offset,
        row.max_offset,
        row.leased,
        row.waiting_retry,
        row.ready,
        row.unacked,
        row.oldest_unacked_ms or None,
    )


def _letter(row: work_pb2.DeadLetter) -> DeadLetter:
    return DeadLetter(
        row.queue_offset,
        row.origin_topic,
        row.origin_queue_id,
        row.origin_queue_offset,
        row.origin_message_id,
        row.attempts,
        row.last_error,
        row.first_attempt_ms,
        row.last_attempt_ms,
        row.store_timestamp,
        row.size,
        row.keys,
    )
