"""Locks of ordered consumption over remoting: who asks for queues, and who gives them up.

    41  leads? ─▶ QueueLocks ─▶ a new owner: durable, and on the in-sync set ─▶ still the term?
                                the same owner ──────────────────────────────▶ lockOKMQSet
    42  QueueLocks, at once

That this node leads is asked after each request came: so a client that is answered had asked before
the next master's term began, from which that one counts (rocketmq/clients/queue_locks.py). An
unlock is not delayed by any question: it must not overtake, nor be overtaken by, a lock of its own
client.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from tandemlog.format.constants import RETRY_PREFIX, group_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.ha.store_port import GROUP_MEMBERS
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import is_handed_on
from tandemlog_server.rocketmq.clients.heartbeats import json_object, name_in, whole_in
from tandemlog_server.rocketmq.clients.queue_locks import Queue, QueueLocks, TooManyLocksError
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

from ...access.identities import Right
from ...error_status import RequestRefusedError, not_sure
from ...roles.role import CurrentRole
from ..door.remoting_call import Connection, Method, RemotingCall, RemotingRefusedError

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 1 << 20
MAX_QUEUES: Final = 4_096
"""Of one request."""
TICK_S: Final = 1.0

Row: TypeAlias = tuple[tuple[str, object], ...]
"""The members of a MessageQueue, as the client named it."""


class LockMethods:
    """See the module. `run` as long as the node serves; `now` is a monotonic clock in seconds."""

    def __init__(self, store: MessageStore, current: CurrentRole, now: Callable[[], float]) -> None:
        self._store = store
        self._current = current
        self._now = now
        self.locks: QueueLocks[Connection] = QueueLocks()
        self._term: int | None = None
        self._connections: set[Connection] = set()
        self._writing = asyncio.Lock()

    def methods(self) -> Mapping[int, Method]:
        return {
            RequestCode.LOCK_BATCH_MQ: Method(self.lock),
            RequestCode.UNLOCK_BATCH_MQ: Method(self.unlock),
        }

    async def run(self) -> None:
        """Until it is cancelled. Notices terms, so that their first moment is known; forgets locks
        that are over."""
        while True:
            try:
                self._notice_term()
                self.locks.expire(self._now())
                if self._term is not None and self.locks.outdated:
                    await self._write(list(self.locks.outdated), self._term)
            except RequestRefusedError:
                pass  # no request waits for it, and it comes again
            except Exception as error:
                logger.warning("locks that have ended are still written as locked: %s", error)
            await asyncio.sleep(TICK_S)

    # ---- requests

    async def lock(self, call: RemotingCall) -> Command:
        """41. Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC, OUTCOME_UNKNOWN), FormatError:
        a client that hears an error keeps the locks that it has while it trusts them."""
        group, client_id, rows = _request(call)
        call.caller.require(Right.CONSUME, (group,))
        call.caller.require(Right.READ, _topics(rows.values(), group))
        term = await self._current.leads()
        self._notice_term()
        if term != self._term:
            raise not_sure()
        self._watch(call.connection)
        try:
            grant = self.locks.lock(
                group, client_id, call.connection, list(rows.values()), self._now(),
                call.caller.holder,
            )  # fmt: skip
        except TooManyLocksError as error:
            raise RemotingRefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from None
        if grant.version:
            await self._write([group], term)
        if self._current.role.epoch() != term or self._term != term:
            raise not_sure()
        granted = set(grant.queues)
        body = {"lockOKMQSet": [dict(row) for row, queue in rows.items() if queue in granted]}
        return call.request.response(json.dumps(body).encode())

    async def unlock(self, call: RemotingCall) -> Command | None:
        """42, mostly oneway. One that another node has handed on may come late, and again: it
        changes nothing, and the lock ends by its time."""
        group, client_id, rows = _request(call)
        call.caller.require(Right.CONSUME, (group,))
        if not is_handed_on(call.request):
            self.locks.unlock(group, client_id, call.connection, list(rows.values()))
        return None if call.request.is_oneway else call.request.response()

    # ---- the term

    def _notice_term(self) -> None:
        term = self._current.role.epoch()
        if term == self._term:
            return
        self._term = term
        rows = {} if term is None else self._store.group_members.lock_rows()
        self.locks.begin(_owners_in(rows), self._now())
        if self.locks.count:
            logger.info("locks of ordered consumers: epoch=%s queues=%d", term, self.locks.count)

    def _watch(self, connection: Connection) -> None:
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(lambda: self._closed(connection))

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.locks.closed(connection, self._now())

    async def _write(self, groups: Iterable[str], term: int) -> None:
        """Write the owners of these groups, once the write before is done: that may have had them.
        Raises RequestRefusedError, or what the disk does."""
        async with self._writing:
            if self._term != term:
                raise not_sure()
            versions, rows = {}, dict[str, object | None]()
            for group in groups:
                ended = group in self.locks.outdated
                version, owners = self.locks.owners(group)
                if ended or (version and not self.locks.is_confirmed(group, version)):
                    versions[group] = version
                    rows[group] = _owners_out(owners) or None
            if not rows:
                return
            try:
                await self._save(rows, term)
            except BaseException:
                self.locks.outdated.update(rows)
                raise
            for group, version in versions.items():
                self.locks.confirm(group, version)

    async def _save(self, rows: Mapping[str, object | None], term: int) -> None:
        """Durable, and on the in-sync set of this term, on return. Raises RequestRefusedError."""
        if not await asyncio.to_thread(
            self._store.group_members.update_locks,
            rows,
            self._store.clock.now_ms(),
            lambda: self._current.role.epoch() == term,
        ):
            raise not_sure()
        await self._current.role.confirm_table(GROUP_MEMBERS)
        if self._term != term:
            raise not_sure()


def _request(call: RemotingCall) -> tuple[str, str, dict[Row, Queue]]:
    """The group, the client, and the queues by their rows as they came. Raises FormatError."""
    document = json_object(call.request.body, "a request for locks", MAX_BODY_BYTES)
    group, client_id = name_in(document, "consumerGroup"), name_in(document, "clientId")
    fault = group_fault(group, new=False)
    if fault is not None:
        raise FormatError(f"consumerGroup {quoted(group)}: {fault}")
    rows = document.get("mqSet")
    if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        raise FormatError("mqSet is no list of queues")
    if len(rows) > MAX_QUEUES:
        raise FormatError(f"mqSet has {len(rows)} queues, the limit is {MAX_QUEUES}")
    queues: dict[Row, Queue] = {}
    for row in rows:
        queue_id = whole_in(row, "queueId", -1)
        if not 0 <= queue_id < 1 << 31:
            raise FormatError(f"queueId {queue_id} is no queue")
        topic, broker = name_in(row, "topic"), name_in(row, "brokerName")
        kept = ("brokerName", broker), ("queueId", queue_id), ("topic", topic)
        queues[kept] = (topic, queue_id)
    return group, client_id, queues


def _topics(queues: Iterable[Queue], group: str) -> set[str]:
    """Those that a right is asked for: the group's own topic of retries goes with the group."""
    return {topic for topic, _ in queues} - {RETRY_PREFIX + group}


def _owners_out(owners: Mapping[Queue, str]) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for (topic, queue_id), client_id in sorted(owners.items()):
        rows.setdefault(topic, {})[str(queue_id)] = client_id
    return rows


def _owners_in(rows: Mapping[str, object]) -> dict[str, dict[Queue, str]]:
    """A row of another shape is no lock: no client has been answered with it."""
    owners: dict[str, dict[Queue, str]] = {}
    for group, topics in rows.items():
        for topic, queues in topics.items() if isinstance(topics, Mapping) else ():
            for queue_id, client_id in queues.items() if isinstance(queues, Mapping) else ():
                if str(queue_id).isdecimal() and isinstance(client_id, str):
                    owners.setdefault(group, {})[str(topic), int(queue_id)] = client_id
    return owners
