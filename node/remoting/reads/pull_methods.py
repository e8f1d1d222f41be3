"""Requests 11 and 361: the pulls of RocketMQ's consumers, parked where there is nothing yet.

    header ─▶ subscription: here, or of the group's heartbeat ─▶ QueueReads ─▶ raw records

The reading is that of every other pull (pulls/queue_reads.py); what is in memory is answered
without a task, and so is what is parked (parked_pulls.py). What differs is where a client is sent
for its next pull, since it survives the death of the master only if it reads from a slave:

    suggestWhichBrokerId   one of the slaves in sync, each queue always the same; this node if there
                           is none; a node that stops names another one

A slave that has not come to an offset yet waits BEHIND_WAIT_S before it sends its reader to the
master: in sync, it is milliseconds behind, and who is parked at the master would hang when it dies.
While it has no master, it keeps its reader.

A pull that comes with the subscription of a heartbeat which this node has not seen is served: every
client compares the tags of what it gets by itself. Of SQL92 it compares nothing, so there it is
refused, and the client asks again. RocketMQ refuses an older subscription too (25), for half a
minute at times: a rebalance alone makes a new version of the same subscription.

A client pulls again at once when it is answered that there is nothing. So a node that stops refuses
where no other one can be named: the client waits a moment, and no answer of its connection is lost.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tandemlog.format.filter.expression import FilterError
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.pull_requests import (
    EVERYTHING,
    MASTER_ID,
    SQL92,
    Narrowing,
    PullRequest,
    SubscriptionError,
    has_moved,
    narrowing,
    pull_answer,
    pull_code,
    read_pull,
    reader_of,
)
from tandemlog_server.rocketmq.wire.remoting import Command

from ...access.caller import Caller
from ...error_status import RequestRefusedError
from ...pulls.dispatch_wait import DispatchWait
from ...pulls.queue_reads import QueueReads
from ...pulls.reading import Reading, Wanted
from ..door.remoting_call import Ended, Method, RemotingCall, RemotingRefusedError
from .group_commits import GroupCommits
from .parked_pulls import ParkedPulls, as_it_is
from .read_rights import require_reads

BEHIND_WAIT_S: Final = 1.0


class Subscription(Protocol):
    """What a group wants of a topic, by the heartbeat of a member; `version` in ms."""

    @property
    def expression(self) -> str: ...
    @property
    def expression_type(self) -> str: ...
    @property
    def version(self) -> int: ...


class Readers(Protocol):
    """Which nodes, by the numbers of the route, can serve reads."""

    def leads(self) -> bool:
        """Whether this node is the master."""

    def own(self) -> int:
        """Of this node, by which clients find it as master and as slave."""

    def master(self) -> int | None:
        """Of the master, as far as it is known and reached."""

    def slaves(self) -> tuple[int, ...]:
        """The slaves in sync whose address for RocketMQ's clients is known, in ascending order; of
        this node too."""

    def another_leads(self) -> bool:
        """Whether there is a master that clients reach, and this node is not it."""


class NoSlaves:
    """Of a node without a cluster."""

    def leads(self) -> bool:
        return True

    def own(self) -> int:
        return MASTER_ID

    def master(self) -> int | None:
        return MASTER_ID

    def slaves(self) -> tuple[int, ...]:
        return ()

    def another_leads(self) -> bool:
        return False


Subscribed = Callable[[str, str], Subscription | None]
"""(group, topic) -> what the group's heartbeats say."""


@dataclass(frozen=True, slots=True)
class _Place:
    topic: str
    queue_id: int
    queue_offset: int


class PullMethods:
    """See the module. `subscribed` knows the heartbeats of this node; `require_pulled` refuses a
    group and a topic whose messages are leased (pop/request_modes.py)."""

    def __init__(
        self,
        reads: QueueReads,
        dispatch: DispatchWait,
        commits: GroupCommits,
        *,
        subscribed: Subscribed,
        readers: Readers | None = None,
        require_pulled: Callable[[str, str], None] | None = None,
    ) -> None:
        self._reads = reads
        self._require_pulled = require_pulled
        self._dispatch = dispatch
        self._commits = commits
        self._subscribed = subscribed
        self._readers = readers or NoSlaves()
        self._leaves = False
        self._parked = ParkedPulls(reads)
        self._tasks: set[asyncio.Task[None]] = set()

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        pull = Method(self.pull, of_master=False, begin=self.begin)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def on_stop(self) -> None:
        """Answer every parked pull, and name another node from now on."""
        self._leaves = True
        self._reads.end_waits()

    def on_role_change(self) -> None:
        """Answer every parked pull: where it should be parked may have changed."""
        self._reads.end_waits()

    def begin(self, call: RemotingCall, ended: Ended) -> bool:
        """See Method: what is in memory is read at once, and who has to wait is parked. Raises as
        `pull`."""
        asked = read_pull(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        if self._require_pulled is not None:
            self._require_pulled(asked.group, asked.topic)
        if self._leaves or self._reads.closed or not self._dispatch.is_caught_up():
            return False
        self._commit(call, asked)
        wants = self._wanted_of(asked)
        if wants.condition:
            return False
        wanted = _wanted(asked, wants)
        if self._reads.loop_share.is_free():
            return self._begin(call, asked, wanted, ended)
        self._reads.loop_share.in_line(partial(self._begin_in_turn, call, asked, wanted, ended))
        return True

    def _begin(self, call: RemotingCall, asked: PullRequest, wanted: Wanted, ended: Ended) -> bool:
        reading = self._reads.read_now(wanted, call.caller, as_it_is)
        if reading is None:
            return bool(asked.wait_ms) and self._parked.park(
                call, wanted, self._answer_of(asked), ended
            )
        ended(call, self._response(call.request, asked, reading), None)
        return True

    def _begin_in_turn(
        self, call: RemotingCall, asked: PullRequest, wanted: Wanted, ended: Ended
    ) -> None:
        """The same for a pull that stood in line; it has a task here if it needs one."""
        if call.connection.closed:
            ended(call, None, None)
            return
        try:
            if self._begin(call, asked, wanted, ended):
                return
        except Exception as problem:
            ended(call, None, problem)
            return
        task = asyncio.get_running_loop().create_task(self._pull_in_task(call, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pull_in_task(self, call: RemotingCall, ended: Ended) -> None:
        try:
            response = await self.pull(call)
        except Exception as problem:
            ended(call, None, problem)
        else:
            ended(call, response, None)

    def _answer_of(self, asked: PullRequest) -> Callable[[RemotingCall, Reading], Command]:
        return lambda call, reading: self._response(call.request, asked, reading)

    async def pull(self, call: RemotingCall) -> Command:
        """The answer, with raw records of the log. Raises RemotingRefusedError, and as QueueReads
        does."""
        asked = read_pull(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        if self._require_pulled is not None:
            self._require_pulled(asked.group, asked.topic)
        leaves_to = self._leave(asked) if self._leaves or self._reads.closed else None
        if leaves_to is not None:
            return call.request.response(
                code=ResponseCode.PULL_NOT_FOUND,
                fields=pull_answer(asked.queue_offset, 0, 0, leaves_to),
            )
        await self._dispatch.caught_up()
        reading = await self._read(asked, self._wanted_of(asked), call.caller)
        return self._response(call.request, asked, reading)

    def _commit(self, call: RemotingCall, asked: PullRequest) -> None:
        """The offset that comes with a pull, in the order in which the requests of a connection
        come, so not in the task of a pull: an older offset must not take back a newer one. The pull
        is served if its offset is refused, or there is no place for it: its client says the same by
        request 15 every few seconds, and as it leaves."""
        offset = asked.commit_offset
        if offset is not None and self._readers.leads():
            self._commits.commit_unheard(
                asked.group, asked.topic, asked.queue_id, offset, call.caller
            )

    async def _read(self, asked: PullRequest, wants: Narrowing, caller: Caller) -> Reading:
        try:
            return await self._reads.read(_wanted(asked, wants), caller, as_it_is)
        except FilterError as problem:
            raise _not_understood(problem) from problem

    def _response(self, request: Command, asked: PullRequest, reading: Reading) -> Command:
        read = reading.queues[0]
        result, following = read.result, read.next_offset
        status, on_slave = result.status, reading.on_slave
        code = pull_code(status, asked.queue_offset, following, on_slave=on_slave)
        if code == ResponseCode.PULL_OFFSET_MOVED and not reading.dispatched:
            # a client would go back to this end, and commit it
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"queue {asked.queue_id} of topic {quoted(asked.topic)} ends at "
                f"{result.max_offset} so far, and what is confirmed is not in it yet; pull again "
                f"from {asked.queue_offset} in a moment",
            )
        if on_slave and has_moved(status, asked.queue_offset):
            # whether it has moved is for the master to say
            master = self._readers.master()
            following = asked.queue_offset
            broker_id = self._readers.own() if master is None else master
        elif self._leaves and code != ResponseCode.SUCCESS:
            broker_id = self._leave(asked)
        else:
            slaves = self._readers.slaves()
            broker_id = reader_of(asked.topic, asked.queue_id, slaves or (self._readers.own(),))
        return request.response(
            bytes(result.records),
            code=code,
            remark=status.value,
            fields=pull_answer(following, result.min_offset, result.max_offset, broker_id),
        )

    def _leave(self, asked: PullRequest) -> int:
        """Where to read next, of the other nodes. Raises RemotingRefusedError if there is none."""
        own, master = self._readers.own(), self._readers.master()
        others = tuple(each for each in self._readers.slaves() if each != own)
        if not others and master is not None and not self._readers.leads():
            others = (master,)
        if not others:
            raise RemotingRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the node is stopping, and knows no other one to read from",
            )
        return reader_of(asked.topic, asked.queue_id, others)

    def _wanted_of(self, asked: PullRequest) -> Narrowing:
        """Raises RemotingRefusedError for a subscription that cannot be understood, or is not
        known."""
        if asked.class_filter:
            return EVERYTHING
        try:
            if asked.subscription is not None:
                return narrowing(asked.subscription, asked.expression_type)
            known = self._subscribed(asked.group, asked.topic)
            if known is None:
                if asked.expression_type == SQL92:
                    raise RemotingRefusedError(
                        ResponseCode.SUBSCRIPTION_NOT_EXIST,
                        f"this node has no heartbeat of group {asked.group} with its SQL92 "
                        f"subscription to topic {asked.topic} yet: ask again",
                    )
                return EVERYTHING
            if known.version < asked.version and known.expression_type != SQL92:
                return EVERYTHING
            return narrowing(known.expression, known.expression_type)
        except SubscriptionError as problem:
            raise _not_understood(problem) from problem


def _wanted(asked: PullRequest, wants: Narrowing) -> Wanted:
    return Wanted(
        (_Place(asked.topic, asked.queue_id, asked.queue_offset),),
        asked.group,
        asked.max_messages,
        asked.max_bytes,
        asked.wait_ms,
        wants.tag_hashes,
        wants.condition,
        BEHIND_WAIT_S,
    )


def _not_understood(problem: Exception) -> RemotingRefusedError:
    return RemotingRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem))
