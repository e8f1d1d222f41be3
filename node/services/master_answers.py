"""Answers that only the master may give: that it still was the master when it gave them.

    request ─▶ (before) ─▶ the method reads, changes ─▶ (after) ─▶ answer, with the master's epoch
                  │                                        │
                  └── lease, or a round of the in-sync set ┴──▶ not sure: NOT_IN_SYNC, ask again

A master that was deposed and has not heard of it has old tables: "there is no such topic", "this
producer is not known", "the committed offset is 1". A caller acts on that for ever, so only a node
that led at a moment after the request came may answer so (NodeRole.leads), and with the epoch of
that term. The check comes after the reading: what was read before was true at that moment. A change
is checked before too, so that a deposed master changes nothing.

One table says for each method what it speaks of. A method without a row is not served, so that a
new one cannot be forgotten.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from tandemlog.v1 import common_pb2

from ..error_status import FOR_EVER, RequestRefusedError, error_of, not_sure
from ..pulls.pull_service import Parts
from ..roles.role import CurrentRole
from .permissions import (
    ADMIN,
    BROKER,
    HEALTH,
    REFLECTION,
    REPLICATION,
    TRANSACTIONS,
    WORK,
    NoRuleError,
)


@dataclass(frozen=True, slots=True)
class Speaks:
    """For whom a method speaks. `before`: only a master begins it; `of_master`: whether the answer
    to this request is taken for the cluster's, not only what is refused: then a node gives it that
    still leads after its reading."""

    before: bool = False
    of_master: Callable[[Any], bool] = lambda request: False


NODE = Speaks()
"""For this node alone, or with the coordinator's word. What it refuses of the cluster's state is
the master's word on a master."""
EITHER = Speaks(of_master=lambda request: request.of_master)
"""Each node has what it holds; a caller says whether it takes that for the cluster's."""
READ = Speaks(of_master=lambda request: True)
"""The master's tables."""
CHANGE = Speaks(before=True)
"""Of tables: done once the in-sync set has them, which a deposed master never hears."""
GROUPS = Speaks(before=True, of_master=lambda request: True)
"""Members and their offsets: what a member is told, it acts on."""
LEASES = Speaks(before=True)
"""Given of what is confirmed, which is no word for the cluster: a message that a deposed master
leases comes once more from the next one."""
POSITIONS = Speaks(of_master=lambda request: bool(request.positions))
"""Without positions it only gives the history of this node's log."""

SPEAKS: Mapping[str, Speaks] = {
    # each of its requests by itself: what the store refuses, by PutPump; the rest is confirmed
    f"{BROKER}/Append": NODE,
    f"{BROKER}/Pull": NODE,
    f"{BROKER}/QueueRanges": EITHER,
    f"{BROKER}/SearchOffset": EITHER,
    f"{BROKER}/QueryByKey": NODE,
    f"{BROKER}/GetByOffset": NODE,
    f"{BROKER}/FetchSegmentRange": NODE,
    f"{BROKER}/FetchLogState": NODE,
    f"{BROKER}/CheckPositions": POSITIONS,
    f"{BROKER}/CommitOffsets": GROUPS,
    f"{BROKER}/FetchOffsets": READ,
    f"{BROKER}/GroupHeartbeat": GROUPS,
    f"{BROKER}/DescribeGroup": GROUPS,
    f"{BROKER}/DescribeProducer": READ,
    # done once the in-sync set has it; a deposed master never hears that
    f"{BROKER}/Recall": CHANGE,
    f"{WORK}/Receive": LEASES,
    f"{WORK}/Acknowledge": GROUPS,
    f"{WORK}/Nack": GROUPS,
    f"{WORK}/Release": GROUPS,
    f"{WORK}/Extend": GROUPS,
    f"{WORK}/Reject": GROUPS,
    f"{WORK}/SetGroupPolicy": CHANGE,
    f"{WORK}/DescribeGroupWork": GROUPS,
    f"{WORK}/ListDeadLetters": GROUPS,
    f"{WORK}/ReadDeadLetter": GROUPS,
    f"{WORK}/ResendDeadLetters": CHANGE,
    f"{WORK}/PurgeDeadLetters": CHANGE,
    # done once the in-sync set has it, as a recall
    f"{TRANSACTIONS}/EndTransaction": CHANGE,
    f"{TRANSACTIONS}/PollTransactionChecks": CHANGE,
    f"{TRANSACTIONS}/ListTransactions": READ,
    f"{TRANSACTIONS}/DecideTransaction": CHANGE,
    f"{ADMIN}/DescribeCluster": NODE,
    f"{ADMIN}/CreateTopic": CHANGE,
    f"{ADMIN}/DeleteTopic": CHANGE,
    f"{ADMIN}/ListTopics": EITHER,
    f"{ADMIN}/ListGroups": READ,
    f"{ADMIN}/DeleteGroup": CHANGE,
    f"{ADMIN}/ChangeCluster": NODE,
    f"{ADMIN}/TakeOver": NODE,
    f"{ADMIN}/ListDelayed": READ,
    f"{ADMIN}/Stats": NODE,
    f"{ADMIN}/DescribeSettings": NODE,
    f"{ADMIN}/ChangeSetting": NODE,
    f"{ADMIN}/ListConnections": NODE,
    f"{ADMIN}/Coordination": NODE,
    f"{ADMIN}/History": NODE,
    f"{ADMIN}/DescribeScrub": NODE,
    f"{ADMIN}/BeginScrub": NODE,
    f"{REPLICATION}/Replicate": NODE,
    f"{REPLICATION}/BlockChecksum": NODE,
    f"{REPLICATION}/FetchBlock": NODE,
    f"{HEALTH}/Check": NODE,
    f"{HEALTH}/List": NODE,
    f"{HEALTH}/Watch": NODE,
    f"{REFLECTION}/ServerReflectionInfo": NODE,
}


def speaks(service: str, method: str) -> Speaks:
    """Raises NoRuleError for a method without a row."""
    row = SPEAKS.get(f"{service}/{method}")
    if row is None:
        raise NoRuleError(
            f"{service}/{method} has no row in the table of who speaks for the master"
        )
    return row


class Leadership:
    """See the module. Without a `current` role nothing is checked: for a door without a cluster."""

    def __init__(self, current: CurrentRole | None = None) -> None:
        self._current = current

    async def begin(self, kind: Speaks, request: Any) -> int | None:
        """Before the method runs: the epoch of which this node is, or calls itself, the master;
        None of none. Raises RequestRefusedError where only a master may begin."""
        if self._current is None:
            return None
        epoch = self._current.role.epoch()
        if kind.before or (epoch is None and kind.of_master(request)):
            return await self._current.leads()
        return epoch

    async def vouch(
        self, kind: Speaks, request: Any, answer: Message | bytes | Parts, begun_in: int | None
    ) -> None:
        """Write the epoch in which it is true into an answer that is the master's. Raises
        RequestRefusedError if that is not known."""
        if self._current is None or begun_in is None:
            return
        if kind.of_master(request):
            await self._still(begun_in)
        elif not kind.before:
            return
        response: Any = answer
        response.master_epoch = begun_in
        if response.error.code:
            response.error.master_epoch = begun_in

    async def refuse(
        self, error: common_pb2.Error, begun_in: int | None = None
    ) -> common_pb2.Error:
        """The error to send: this one with its epoch, or that this master is not sure. A node that
        is no master sends what it knows, and no epoch."""
        if self._current is None or error.code not in FOR_EVER:
            return error
        try:
            error.master_epoch = await self._still(begun_in)
        except RequestRefusedError as refusal:
            return error if refusal.code == common_pb2.NOT_MASTER else error_of(refusal)
        return error

    async def _still(self, begun_in: int | None) -> int:
        """The epoch, if this node has led all the time since it was asked for it. What it read as a
        slave, or in an earlier term, says nothing of this one."""
        assert self._current is not None, "the callers have looked"
        epoch = await self._current.leads()
        if epoch != begun_in:
            raise not_sure()
        return epoch
