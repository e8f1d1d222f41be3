"""The dead letters of groups, as operators and consumers ask for them.

    list, read      %DLQ%group, without those that are done
    resend          each into its own topic ─▶ done once that is in the log
    purge           done, up to an offset

Done is what the group itself says of its dead-letter topic, in its progress records: so a consumer
that works on `%DLQ%group` empties the list too.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tandemlog.format.constants import DEAD_LETTER_PREFIX
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.lease.dead_letter import decode_dead_letter
from tandemlog.format.lease.policy import MAX_HANDLES, dead_letter_topic
from tandemlog.format.record.record import decode_record
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.leases.queue_leases import QueueLeases
from tandemlog_server.storage.services.dead_letters import MAX_PAGE, DeadLetterPage

from ..error_status import RequestRefusedError, check_count
from ..process.tasks import to_its_end
from .work_requests import check_group, no_group
from .work_service import WorkService
from .work_term import WorkTerm


@dataclass(frozen=True, slots=True)
class ResendResult:
    """Queue offsets of the dead letters that were sent again, or, in a dry run, would be; and those
    that could not be, each with the reason."""

    sent: tuple[int, ...]
    refused: tuple[tuple[int, str], ...]


class DeadLetterService:
    """See the module. All raise RequestRefusedError (NOT_MASTER, UNKNOWN_GROUP,
    INVALID_ARGUMENT)."""

    def __init__(self, work: WorkService) -> None:
        self._work = work
        self._sending: set[tuple[str, int]] = set()

    async def list(self, group: str, from_offset: int, count: int) -> DeadLetterPage:
        """Up to `count` dead letters from that queue offset on."""
        term, queue = await self._open(group)
        if queue is None:
            return DeadLetterPage((), 0, 0, 0)
        rows, following = await asyncio.to_thread(
            term.letters.rows,
            group,
            max(from_offset, queue.floor),
            min(count, MAX_PAGE),
            queue.is_done,
        )
        return DeadLetterPage(rows, following, queue.end, queue.left)

    async def read(self, group: str, queue_offset: int) -> bytes:
        """The raw record, done or not."""
        term, _ = await self._open(group)
        data = await asyncio.to_thread(term.letters.read, group, queue_offset)
        if data is None:
            raise _no_letter(group, queue_offset)
        return data

    async def origins(self, group: str, offsets: Sequence[int]) -> set[str]:
        """The topics to which `resend` would send."""
        topics = set()
        for offset in offsets:
            record = decode_record(await self.read(group, offset), check_crc=False)
            topics.add(decode_dead_letter(record).topic)
        return topics - {""}

    async def resend(
        self, group: str, offsets: Sequence[int], holder: str, *, dry_run: bool = False
    ) -> ResendResult:
        """Send the messages again, as new ones, with their own properties. A letter that is done
        already is refused."""
        check_count("offsets", len(offsets), MAX_HANDLES)
        term, queue = await self._open(group)
        sent: list[int] = []
        refused: list[tuple[int, str]] = []
        for offset in dict.fromkeys(offsets):
            if queue is None or not queue.floor <= offset < queue.end or queue.is_done(offset):
                refused.append((offset, "there is none, or it was sent again or purged"))
                continue
            if (group, offset) in self._sending:
                refused.append((offset, "another call is sending it just now"))
                continue
            if not dry_run:
                self._sending.add((group, offset))
                try:
                    # else one whose caller goes away would be in the list still, to be sent twice
                    await to_its_end(self._send_again(term, queue, offset, holder))
                except (StoreError, CorruptRecordError) as error:
                    refused.append((offset, str(error)))
                    continue
            sent.append(offset)
        if sent and not dry_run:
            term.after()
            await self._work.sync(group)
        return ResendResult(tuple(sent), tuple(refused))

    async def _send_again(
        self, term: WorkTerm, queue: QueueLeases, offset: int, holder: str
    ) -> None:
        """It is in the log again, and done."""
        try:
            await asyncio.to_thread(term.letters.send_again, queue.group, offset, holder)
            term.check()
            term.engine.pass_over(queue, offset, offset + 1)
        finally:
            self._sending.discard((queue.group, offset))

    async def purge(self, group: str, before_offset: int, *, dry_run: bool = False) -> int:
        """All dead letters below that queue offset are done; returns how many. Retention deletes
        their records with the log."""
        term, queue = await self._open(group)
        if queue is None:
            return 0
        before = queue.left
        end = min(before_offset, queue.end)
        if dry_run:
            return before - queue.left_from(max(end, queue.floor))
        term.engine.pass_over(queue, queue.floor, end)
        term.after()
        await self._work.sync(group)
        return before - queue.left

    async def _open(self, group: str) -> tuple[WorkTerm, QueueLeases | None]:
        """None if the group has never had a dead letter."""
        check_group(group)
        term = await self._work.ready()
        if group.startswith(DEAD_LETTER_PREFIX):
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"{quoted(group)} is a topic of dead letters: name the group itself",
                field="group",
            )
        topic = dead_letter_topic(group)
        if not term.letters.end(group):
            if await self._work.policy(group) is None:
                raise no_group(group)
            return term, None
        # dead letters of a broker's group are there before it has worked here
        await term.open(group, [topic], create=True)
        return term, term.engine.groups.queue(group, topic, 0)


def _no_letter(group: str, queue_offset: int) -> RequestRefusedError:
    return RequestRefusedError(
        common_pb2.OFFSET_OUT_OF_RANGE,
        f"group {quoted(group)} has no dead letter {queue_offset}: list them with `tandemlog dlq "
        f"list {group}`",
        field="queue_offset",
        actual=queue_offset,
    )
