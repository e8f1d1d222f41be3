"""Generated from AsyncWorkAdmin (tandemlog/consume/work/work_admin.py) by `make sync`. Do not edit.

Each call runs in the clients' loop (loop_thread.py); the caller's thread waits for it.
"""

from collections.abc import Sequence

from ...cluster.connection_options import ConnectionOptions
from ...consume.received.received_message import ReceivedMessage
from ...consume.work.work_admin import (
    AsyncWorkAdmin,
    DeadLetter,
    GroupWork,
    PolicyChange,
    ResentLetter,
)
from ...consume.work.work_options import BackoffLike
from ...transport.security import Security
from ..loop_thread import SyncClient


class WorkAdmin(SyncClient[AsyncWorkAdmin]):
    """Administers the work queues of the cluster that `endpoints` belong to: policies of groups,
    and dead letters."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        super().__init__(AsyncWorkAdmin(endpoints, connection=connection, security=security))

    def close(self) -> None:
        """Closes the connection."""
        super().close()

    def group_work(self, group: str) -> GroupWork:
        """What the group has under way, by the master's word. Raises UnknownGroupError."""
        return self._thread.run(self._client.group_work(group))

    def set_policy(
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
        return self._thread.run(
            self._client.set_policy(
                group,
                max_attempts=max_attempts,
                backoff=backoff,
                ordered=ordered,
                start=start,
                dry_run=dry_run,
            )
        )

    def dead_letters(
        self, group: str, *, first: int = 0, count: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a group from number `first` on, oldest first; at most `count` (None:
        all). Raises UnknownGroupError."""
        return self._thread.run(self._client.dead_letters(group, first=first, count=count))

    def dead_letter(self, group: str, queue_offset: int) -> ReceivedMessage:
        """The dead letter with this number, as it lies in the group's topic of dead letters. Raises
        OffsetOutOfRangeError."""
        return self._thread.run(self._client.dead_letter(group, queue_offset))

    def resend_dead_letters(
        self, group: str, queue_offsets: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[ResentLetter]:
        """Sends a copy of each of these dead letters (None: of all) to the topic that it came from;
        it is not a dead letter any more. With `dry_run` nothing is sent. Raises OutcomeUnknownError
        if the master gave no answer: some may have been sent."""
        return self._thread.run(
            self._client.resend_dead_letters(group, queue_offsets, dry_run=dry_run)
        )

    def purge_dead_letters(
        self, group: str, before: int | None = None, *, dry_run: bool = False
    ) -> int:
        """Forgets the dead letters with numbers below `before` (None: all that are there), and
        returns how many. Their records go with their log files. With `dry_run` nothing is
        forgotten."""
        return self._thread.run(self._client.purge_dead_letters(group, before, dry_run=dry_run))
