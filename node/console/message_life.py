"""A message's life, as far as there is evidence of it: what happened with times, then what is now.

    created ─▶ held back, or waited for its time ─▶ stored ─▶ confirmed
                                                      │
    each group that the caller may consume:           ├─▶ passed (its offset is beyond), or not yet
                                                      ├─▶ work queue: done, tried, not delivered
                                                      └─▶ copies in its retry and dead-letter topics

A group that reads in order says how far it is, not what became of a message: that is told as
"passed", never as delivered. A work queue says more: what is done and what was tried is in the log
(storage/folds/lease_fold.py), as far as this node has it. Copies are found by the message's unique
id and count where their properties name this message.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.delayed_messages import DelayedMessage
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.consume.work.work_admin import AsyncWorkAdmin, QueueWork
from tandemlog.errors import (
    BadRecordError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    TandemlogError,
    UnknownGroupError,
    UnknownTopicError,
)
from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    DELAY_TOPICS,
    HALF_TOPIC,
    RETRY_PREFIX,
)
from tandemlog.format.delay.ending import named_offsets
from tandemlog.format.lease.dead_letter import FIRST_MESSAGE_ID, decode_dead_letter
from tandemlog.format.lease.policy import dead_letter_topic
from tandemlog.format.lease.progress import QueueProgress
from tandemlog.format.record.record import Record

from .served_node import ServedNode
from .visit import Json, Visit

MOST_GROUPS = 100
AT_ONCE = 4
COPIES = 32
"""Of one message in one topic: RocketMQ tries 16 times."""

Event = Mapping[str, Any]
"""`at`: ms since the epoch, None for what is now; `text`; `group`; `place`: topic, queue_id and
queue_offset of a message that it is about."""


def _event(text: str, at: int | None = None, **more: Any) -> Event:
    return {"at": at or None, "text": text, **more}


class MessageLife:
    """See the module; of one message, for one visit."""

    def __init__(self, node: ServedNode, visit: Visit, message: ReceivedMessage) -> None:
        self._node = node
        self._visit = visit
        self._message = message
        self._unseen: list[str] = []
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._copying = asyncio.Lock()

    async def told(self) -> Json:
        """Raises BadRecordError for a damaged record."""
        record = self._message.record
        clients = self._visit.clients
        async with (
            clients.admin() as admin,
            AsyncWorkAdmin(clients.endpoint, connection=clients.options) as work,
        ):
            begin = await self._origin(admin, record)
            groups, left_out = await self._groups(admin)
            of_groups = await asyncio.gather(
                *(self._in_turn(admin, work, record, group) for group in groups)
            )
        events = [*begin, *self._stored(record), *(each for found in of_groups for each in found)]
        events.sort(key=lambda each: (each["at"] is None, each["at"] or 0))
        if not groups:
            events.append(
                _event("No consumer group that you may see has an offset, or a work queue, here.")
            )
        if record.uniq_key is None:
            self._unseen.append(
                "It has no unique id (UNIQ_KEY), so copies of it in retry and dead-letter topics "
                "cannot be looked for."
            )
        if left_out:
            self._unseen.append(f"{left_out} more groups were not asked.")
        return {"events": events, "not_known": self._unseen}

    # ---- up to the log

    async def _origin(self, admin: AsyncAdmin, record: Record) -> list[Event]:
        events = [
            _event(f"A producer at {record.born_host} created it.", record.born_timestamp),
            *_copy_of(record),
        ]
        if not record.prepared_transaction_offset:
            return events
        at = int(named_offsets(np.array([record.prepared_transaction_offset]))[0])
        try:
            [source] = await admin.messages_at([at])
            before = source.record
        except PermissionDeniedError:
            self._unseen.append(
                f"It was held back in the record at log offset {at}: reading that needs the right "
                "to read every topic."
            )
        except (OffsetOutOfRangeError, BadRecordError):
            self._unseen.append(
                f"It was held back in the record at log offset {at}, which cannot be read any more."
            )
        else:
            events.append(_event(_held_back(before, at), before.store_timestamp))
        return events

    def _stored(self, record: Record) -> list[Event]:
        store = self._node.store
        at, end = record.physical_offset, record.physical_offset + record.size
        epoch = store.epochs.table.entry_at(at)
        term = "" if epoch is None else f", in epoch {epoch.epoch}{self._leader(epoch.epoch)}"
        events = [
            _event(
                f"The master at {record.store_host} stored it in queue {record.queue_id} at offset "
                f"{record.queue_offset}, log offset {at}{term}.",
                record.store_timestamp,
            )
        ]
        confirmed = store.confirmed.value
        if end <= confirmed:
            text = f"It is confirmed: the nodes in sync have the log up to {confirmed}."
        else:
            text = f"It is not confirmed yet: the nodes in sync have the log up to {confirmed}."
        events.append(_event(text))
        return events

    def _leader(self, epoch: int) -> str:
        elections = self._node.membership.elections
        terms: Any = [] if elections is None else elections.epochs()["terms"]
        return next((f" of {each['leader']}" for each in terms if each["epoch"] == epoch), "")

    # ---- groups

    async def _groups(self, admin: AsyncAdmin) -> tuple[Sequence[str], int]:
        """Those to ask, and how many are left out: first those of which this node knows that they
        read the topic."""
        topic = self._message.topic
        store = self._node.store
        seen = set(await admin.groups())
        known = {group for name, group in store.consumer_offsets.pairs() if name == topic}
        known |= {each.group for each in store.leases.everything()[0] if each.topic == topic}
        order = sorted(seen, key=lambda group: (group not in known, group))
        return order[:MOST_GROUPS], max(0, len(order) - MOST_GROUPS)

    async def _in_turn(
        self, admin: AsyncAdmin, work: AsyncWorkAdmin, record: Record, group: str
    ) -> list[Event]:
        async with self._turns:
            try:
                copies = await self._copies(admin, record, group)
                return copies + await self._of_group(admin, work, record, group)
            except (UnknownGroupError, UnknownTopicError):
                return []  # deleted meanwhile
            except PermissionDeniedError as error:
                self._unseen.append(f"Group {group}: {error}")
            except TandemlogError as error:
                self._unseen.append(f"Group {group} could not be asked: {error}")
            return []

    async def _of_group(
        self, admin: AsyncAdmin, work: AsyncWorkAdmin, record: Record, group: str
    ) -> list[Event]:
        committed = await admin.committed(group, [record.topic])
        offset = committed.get((record.topic, record.queue_id))
        if offset is not None:
            return [_event(_passed(group, record.queue_offset, offset), group=group)]
        try:
            queues = (await work.group_work(group)).queues
        except UnknownGroupError:
            queues = ()
        place = record.topic, record.queue_id
        found = next((each for each in queues if (each.topic, each.queue_id) == place), None)
        progress = self._progress(group, *place)
        if found is not None or progress is not None:
            return self._of_work(record, group, found, progress)
        return await self._of_members(admin, record, group)

    def _of_work(
        self, record: Record, group: str, queue: QueueWork | None, progress: QueueProgress | None
    ) -> list[Event]:
        """`queue` is what the master has in memory, which is new with each master; `progress`
        what this node knows from the log. An attempt in either of them is one."""
        offset = record.queue_offset
        if (queue is not None and offset < queue.floor) or _is_done(progress, offset):
            text = (
                f"Group {group} is done with it: a consumer acknowledged it, it became a dead "
                "letter, or the group's filter left it out."
            )
            return [_event(text, group=group)]
        attempts, first_ms, error = _tried(progress, offset)
        if not attempts and (queue is None or offset >= queue.next_offset):
            text = f"Group {group} is not known to have been given it."
            if queue is not None:
                text += f" {offset - queue.next_offset:,} messages before it come first."
            return [_event(text, group=group)]
        events = []
        if first_ms:
            events.append(
                _event(f"Group {group} was given it for the first time.", first_ms, group=group)
            )
        text = f"Group {group} was given it and is not known to be done with it"
        if attempts:
            text += f": {_attempts(attempts)}"
        if error:
            text += f", the last error was {error!r}"
        if queue is not None:
            text += (
                f". In this queue {queue.leased} messages are with consumers, "
                f"{queue.waiting_retry} wait for their next attempt, and {queue.ready} can be "
                "given again now"
            )
        return [*events, _event(text + ".", group=group)]

    def _progress(self, group: str, topic: str, queue_id: int) -> QueueProgress | None:
        for each in self._node.store.leases.of_group(group):
            if (each.topic, each.queue_id) == (topic, queue_id):
                return each
        return None

    async def _of_members(self, admin: AsyncAdmin, record: Record, group: str) -> list[Event]:
        members = (await admin.describe_group(group)).members
        if not any(record.topic in each.topics for each in members):
            return []
        text = (
            f"Group {group} has members that read the topic, and has committed nothing in this "
            "queue."
        )
        return [_event(text, group=group)]

    # ---- copies

    async def _copies(self, admin: AsyncAdmin, record: Record, group: str) -> list[Event]:
        if record.uniq_key is None or record.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return []
        events: list[Event] = []
        retry, dead = RETRY_PREFIX + group, dead_letter_topic(group)
        for topic, told in ((retry, self._retried), (dead, self._died)):
            if self._node.store.topics.get(topic) is None:
                continue
            try:
                async with self._copying:  # they are as large as the message
                    copies = await admin.query_by_key(topic, record.uniq_key, max_messages=COPIES)
                    events += [
                        event for copy in copies for event in told(record, group, copy.record)
                    ]
            except PermissionDeniedError:
                self._unseen.append(
                    f"Whether {topic} has copies of it: you may not read that topic."
                )
                continue
            if topic == retry:
                events += [
                    _event(
                        f"Group {group} sent it back: it comes again at the time given here.",
                        each.deliver_at_ms,
                        group=group,
                    )
                    for each in await self._waiting(admin, retry)
                    if each.unique_key == record.uniq_key
                ]
        return events

    async def _waiting(self, admin: AsyncAdmin, topic: str) -> Sequence[DelayedMessage]:
        try:
            return await admin.delayed(topic)
        except PermissionDeniedError:
            return ()

    def _retried(self, record: Record, group: str, copy: Record) -> list[Event]:
        if copy.properties.get(FIRST_MESSAGE_ID) != record.msg_id:
            return []
        text = f"Group {group} had sent it back: retry {copy.reconsume_times} came to {copy.topic}."
        return [_event(text, copy.store_timestamp, group=group, place=_place(copy))]

    def _died(self, record: Record, group: str, copy: Record) -> list[Event]:
        letter = decode_dead_letter(copy)
        origin = letter.topic, letter.queue_id, letter.queue_offset
        if origin != (record.topic, record.queue_id, record.queue_offset) and record.msg_id not in (
            letter.message_id,
            copy.properties.get(FIRST_MESSAGE_ID),
        ):
            return []
        events = []
        if letter.first_attempt_ms:
            events.append(
                _event(f"Group {group}: first attempt.", letter.first_attempt_ms, group=group)
            )
        why = f": {letter.last_error}" if letter.last_error else ""
        text = f"It became a dead letter of group {group} after {_attempts(letter.attempts)}{why}"
        events.append(_event(text, copy.store_timestamp, group=group, place=_place(copy)))
        progress = self._progress(group, copy.topic, copy.queue_id)
        if _is_done(progress, copy.queue_offset):
            text = (
                f"It is no dead letter of group {group} any more: it was sent again, or forgotten."
            )
            events.append(_event(text, group=group))
        return events


def _place(record: Record) -> Mapping[str, Any]:
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
    }


def _copy_of(record: Record) -> list[Event]:
    """What a retry or a dead letter says of the message that it is a copy of."""
    retried = record.topic.startswith(RETRY_PREFIX)
    if not retried and not record.topic.startswith(DEAD_LETTER_PREFIX):
        return []
    letter = decode_dead_letter(record)
    what = "a retry" if retried else "the dead letter"
    name = record.properties.get(FIRST_MESSAGE_ID) or letter.message_id
    text = f"It is {what} of the message {name or 'that it does not name'}"
    if not letter.topic:
        return [_event(text + ".")]
    text += f" of topic {letter.topic}."
    if letter.queue_offset < 0:
        return [_event(text)]
    place = {
        "topic": letter.topic,
        "queue_id": letter.queue_id,
        "queue_offset": letter.queue_offset,
    }
    return [_event(text, place=place)]


def _held_back(source: Record, at: int) -> str:
    if source.topic == HALF_TOPIC:
        return f"A transaction held it back, in the record at log offset {at}, until it committed."
    if source.topic in DELAY_TOPICS:
        return f"It waited for its time, in the record at log offset {at} of {source.topic}."
    return (
        f"It names the record at log offset {at} of {source.topic} as the one that it comes from."
    )


def _passed(group: str, queue_offset: int, committed: int) -> str:
    if committed > queue_offset:
        return (
            f"Group {group} has passed it: its committed offset is {committed}, "
            f"{committed - queue_offset:,} beyond it. What its consumers did with it is not known."
        )
    return (
        f"Group {group} has not passed it: its committed offset is {committed}, "
        f"{queue_offset - committed:,} messages come before it."
    )


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _is_done(progress: QueueProgress | None, offset: int) -> bool:
    if progress is None:
        return False
    if progress.floor is not None and offset < progress.floor:
        return True
    return bool(((progress.ended_starts <= offset) & (offset < progress.ended_ends)).any())


def _tried(progress: QueueProgress | None, offset: int) -> tuple[int, int, str]:
    """Attempts, time of the first in ms, last error."""
    if progress is None:
        return 0, 0, ""
    rows = np.flatnonzero(progress.offsets == offset)
    if not len(rows):
        return 0, 0, ""
    row = int(rows[0])
    return (
        int(progress.attempts[row]),
        int(progress.first_ms[row]),
        progress.errors.get(offset, ""),
    )
