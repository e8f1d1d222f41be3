"""Rules of parking and forwarding, each switched off: the simulation must notice.

A mutation is a patch of one method or number, by its name. Some rules have none: the unit tests of
sends that a master keeps, and of a planned stop hold theirs. A second attempt at a send that the
master before has stored is rare, so that rule names the runs that have one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from sim import parking_node
from tandemlog.format.record.record import Record
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.puts.confirm_waiters import ConfirmWaiters, Outcome
from tandemlog_server.node.puts.joint_put import JointPut
from tandemlog_server.node.puts.stored_copies import StoredCopies
from tandemlog_server.node.remoting.cluster import forwarding
from tandemlog_server.node.remoting.cluster.forwarding import Forwarder, ForwardingLimits
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.node.remoting.sends.repeated_sends import RepeatedSends
from tandemlog_server.node.remoting.sends.second_attempts import SecondAttempts
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.dispatch.reput import ReputService

ENOUGH = range(40)


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is replaced, by what, and the runs of which one must notice."""

    target: object
    name: str
    instead: Any
    seeds: Sequence[int] = ENOUGH


async def _parks_nothing(self: Forwarder, until: float) -> bool:
    return False


async def _finds_nothing(self: RepeatedSends, request: Command) -> Command | None:
    return None


async def _looks_for_no_copy(*_: object) -> Sequence[Record]:
    return ()


async def _does_not_wait(self: StoredCopies, epoch: int) -> None: ...


def _refuses_nothing(self: Forwarder, holder: str, size: int) -> None:
    self._requests.take(holder)
    self._bytes.take(holder, size)


def _acknowledges_at_once(self: JointPut, waiters: ConfirmWaiters) -> bool:
    self._find_places()
    self._answer(broker_pb2.PUT_OK)
    return False


def _acknowledges_what_is_fenced(self: JointPut, outcome: Outcome, failure: Any) -> None:
    _resolve(self, Outcome.CONFIRMED if outcome is Outcome.FENCED else outcome, failure)


def _dispatches_what_is_written(self: ReputService, limit: int | None = None) -> int:
    return _run_once(self, cast("Any", self._source.log).wrote.value)


def _hands_nothing_on(self: Forwarder, call: RemotingCall, *more: Any) -> Any:
    return _refused(call)


async def _refused(call: RemotingCall) -> Command:
    return call.request.response(code=forwarding.NOT_LEADING, remark="this node does not lead")


_resolve = JointPut.resolve
_run_once = ReputService.run_once

MUTATIONS: Mapping[str, Mutation] = {
    "a request waits for a master": Mutation(Forwarder, "_wait", _parks_nothing),
    "a slave hands sends on": Mutation(Forwarder, "_serve_later", _hands_nothing_on),
    "a request waits no longer than its time": Mutation(
        parking_node, "ForwardingLimits", partial(ForwardingLimits, park_s=60.0)
    ),
    "requests for the master are bounded": Mutation(Forwarder, "_take", _refuses_nothing),
    "a request that may have been done is marked": Mutation(forwarding, "REPEATED", 0),
    "the first copy of a marked request is looked for": Mutation(
        RepeatedSends, "answer", _finds_nothing
    ),
    "the log is known to its end before": Mutation(StoredCopies, "_all_known", _does_not_wait),
    "the first copy of a second attempt is looked for": Mutation(
        SecondAttempts, "first_copies", _looks_for_no_copy, seeds=(216, 228)
    ),
    "what is not confirmed is not acknowledged": Mutation(
        JointPut, "stored", _acknowledges_at_once
    ),
    "what the term did not confirm is not acknowledged": Mutation(
        JointPut, "resolve", _acknowledges_what_is_fenced
    ),
    "what is not confirmed is not read": Mutation(
        ReputService, "run_once", _dispatches_what_is_written
    ),
}
