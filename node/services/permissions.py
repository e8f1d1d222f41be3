"""What each method needs: one table, from the full name of a method to its rule.

A method without a row is not served: the server refuses to start with it, so a new one cannot be
forgotten. A rule checks the topics and groups that a request names, before the method looks whether
they exist: a caller that may not see a topic cannot tell by an error that there is one.

Bytes of the log have records of any topic: to read them by their position needs the right to read
every topic. Lists show only what the caller may see, so their methods ask the caller themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import Message

from tandemlog.format.words import shortened
from tandemlog_server.ha.protocol.proof import NodeProof, why_no_node, why_not_proven

from ..access.access_refusals import DeniedError, denied
from ..access.caller import Caller
from ..access.identities import Right

Check: TypeAlias = Callable[[Caller, Any], None]

BROKER = "tandemlog.v1.Broker"
ADMIN = "tandemlog.v1.Admin"
TRANSACTIONS = "tandemlog.v1.Transactions"
REPLICATION = "tandemlog.v1.Replication"
WORK = "tandemlog.v1.Work"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a caller needs. `audited` methods are one line each in the audit log; `open_to_probes`
    ones need no identity where security.open_health is set. `waits`: its answer may take a
    while, so it is checked once more before it is given."""

    needs: str
    check: Check
    audited: bool = False
    open_to_probes: bool = False
    waits: bool = False


def _any(_: Caller, __: Any) -> None:
    return


def _admin(caller: Caller, request: Message) -> None:
    caller.require_admin(request.DESCRIPTOR.name.removesuffix("Request"))


def _member(caller: Caller, request: Any) -> None:
    """Bytes of the log go to the node that the proof names; an administrator is none."""
    who = caller.who
    if who is None:
        return
    proof = NodeProof(who.identity.name, who.nodes, who.proof_fault)
    if fault := why_no_node(proof) or why_not_proven(proof, request.node_id):
        raise DeniedError(Right.NODE, fault)


def _reads_all(caller: Caller, request: Message) -> None:
    identity = caller.restricted
    if identity is not None and not caller.reads_all():
        name = request.DESCRIPTOR.name.removesuffix("Request")
        raise denied(identity, Right.READ, f"'*' (every topic), which {name} needs")


def _topics_of(rows: Iterable[Any]) -> Iterator[str]:
    """One after the other: a request may have half a million rows, of which the first may be denied
    already, and for most callers none is looked at."""
    return (each.topic for each in rows)


def _pull(caller: Caller, request: Any) -> None:
    if caller.restricted is None:
        return
    caller.require(Right.READ, _topics_of(request.positions))
    if request.group:
        caller.require(Right.CONSUME, (request.group,))


def _commit(caller: Caller, request: Any) -> None:
    caller.require(Right.CONSUME, (request.group,))
    caller.require(Right.READ, _topics_of(request.offsets))


def _fetch_offsets(caller: Caller, request: Any) -> None:
    caller.require(Right.CONSUME, (request.group,))
    caller.require_see(request.topics)


def _consume(caller: Caller, request: Any) -> None:
    caller.require(Right.CONSUME, (request.group,))


def _heartbeat(caller: Caller, request: Any) -> None:
    caller.require(Right.CONSUME, (request.group,))
    caller.require(Right.READ, request.topics)


def _end_transaction(caller: Caller, request: Any) -> None:
    """The topics of its messages are known to the store (transaction_service.py)."""
    for each in request.offsets:
        _commit(caller, each)


def _writes_something(caller: Caller, request: Any) -> None:
    identity = caller.restricted
    if identity is not None and not identity.patterns(Right.WRITE):
        name = request.DESCRIPTOR.name.removesuffix("Request")
        raise denied(identity, Right.WRITE, f"of any name, which {name} needs")


def _receive(caller: Caller, request: Any) -> None:
    caller.require(Right.CONSUME, (request.group,))
    caller.require(Right.READ, request.topics)


ANY = Rule("an identity", _any)
CONSUMER = Rule("consume of the group", _consume)
PROBE = Rule("an identity, unless security.open_health", _any, open_to_probes=True)
ADMINISTRATOR = Rule("admin", _admin, audited=True)
WHOLE_LOG = Rule("read of *", _reads_all)
MEMBER = Rule("node", _member)

RULES: Mapping[str, Rule] = {
    # its requests are checked one by one, by the table of each (put_pump.py)
    f"{BROKER}/Append": Rule("write of each topic", _any),
    f"{BROKER}/Pull": Rule("read of each topic, consume of the group", _pull, waits=True),
    f"{BROKER}/QueueRanges": Rule(
        "read or write of each topic; shows those that the caller may see",
        lambda caller, request: caller.require_see(request.topics),
    ),
    f"{BROKER}/SearchOffset": Rule(
        "read of each topic",
        lambda caller, request: caller.require(Right.READ, _topics_of(request.queues)),
    ),
    f"{BROKER}/QueryByKey": Rule(
        "read of the topic", lambda caller, request: caller.require(Right.READ, (request.topic,))
    ),
    f"{BROKER}/GetByOffset": WHOLE_LOG,
    f"{BROKER}/FetchSegmentRange": WHOLE_LOG,
    f"{BROKER}/FetchLogState": ADMINISTRATOR,
    f"{BROKER}/CommitOffsets": Rule("consume of the group, read of each topic", _commit),
    f"{BROKER}/FetchOffsets": Rule(
        "consume of the group, read or write of each topic; shows those that the caller may see",
        _fetch_offsets,
    ),
    f"{BROKER}/GroupHeartbeat": Rule(
        "consume of the group, read of each topic", _heartbeat, waits=True
    ),
    f"{BROKER}/DescribeGroup": Rule(
        "consume of the group; shows the members of topics that the caller may see",
        lambda caller, request: caller.require(Right.CONSUME, (request.group,)),
    ),
    f"{BROKER}/CheckPositions": Rule(
        "read of each topic",
        lambda caller, request: caller.require(Right.READ, _topics_of(request.positions)),
    ),
    f"{BROKER}/Recall": Rule(
        "write of the topic", lambda caller, request: caller.require(Right.WRITE, (request.topic,))
    ),
    f"{BROKER}/DescribeProducer": Rule("write of some topic", _writes_something),
    f"{WORK}/Receive": Rule("consume of the group, read of each topic", _receive, waits=True),
    f"{WORK}/Acknowledge": CONSUMER,
    f"{WORK}/Nack": CONSUMER,
    f"{WORK}/Release": CONSUMER,
    f"{WORK}/Extend": CONSUMER,
    f"{WORK}/Reject": CONSUMER,
    f"{WORK}/SetGroupPolicy": Rule("consume of the group", _consume, audited=True),
    f"{WORK}/DescribeGroupWork": Rule(
        "consume of the group; shows queues of topics that the caller may see", _consume
    ),
    # where a dead letter came from is known only when it was read: work_methods.py looks then
    f"{WORK}/ListDeadLetters": Rule(
        "consume of the group; shows those of topics that the caller may see", _consume
    ),
    f"{WORK}/ReadDeadLetter": Rule(
        "consume of the group, read of the topic that it came from", _consume
    ),
    f"{WORK}/ResendDeadLetters": Rule(
        "consume of the group, write of each topic that they came from", _consume, audited=True
    ),
    f"{WORK}/PurgeDeadLetters": Rule("consume of the group", _consume, audited=True),
    f"{TRANSACTIONS}/EndTransaction": Rule(
        "write of the topics of its messages; for offsets consume of the group, read of each topic",
        _end_transaction,
    ),
    f"{TRANSACTIONS}/PollTransactionChecks": Rule(
        "write of some topic; gives the checks whose topics the caller may write",
        _writes_something,
        waits=True,
    ),
    f"{TRANSACTIONS}/ListTransactions": Rule(
        "an identity; shows transactions of topics that the caller may see", _any
    ),
    f"{TRANSACTIONS}/DecideTransaction": ADMINISTRATOR,
    f"{ADMIN}/DescribeCluster": ANY,
    f"{ADMIN}/CreateTopic": ADMINISTRATOR,
    f"{ADMIN}/DeleteTopic": ADMINISTRATOR,
    f"{ADMIN}/DeleteGroup": ADMINISTRATOR,
    f"{ADMIN}/ChangeCluster": ADMINISTRATOR,
    f"{ADMIN}/TakeOver": ADMINISTRATOR,
    f"{ADMIN}/DescribeSettings": Rule("admin", _admin),
    f"{ADMIN}/ChangeSetting": ADMINISTRATOR,
    f"{ADMIN}/ListConnections": Rule("admin", _admin),
    f"{ADMIN}/DescribeScrub": Rule("admin", _admin),
    f"{ADMIN}/BeginScrub": ADMINISTRATOR,
    f"{ADMIN}/ListTopics": Rule(
        "read or write of each topic; shows those that the caller may see",
        lambda caller, request: caller.require_see(request.names),
    ),
    f"{ADMIN}/ListGroups": Rule(
        "an identity; shows the groups that the caller may consume, of topics that it may see", _any
    ),
    f"{ADMIN}/ListDelayed": Rule(
        "read or write of the topic; shows those that the caller may see",
        lambda caller, request: caller.require_see((request.topic,) if request.topic else ()),
    ),
    f"{ADMIN}/Stats": ANY,
    f"{ADMIN}/Coordination": ANY,
    f"{ADMIN}/History": ANY,
    # its hello is checked against the caller's proof (ha/protocol/proof.py)
    f"{REPLICATION}/Replicate": Rule("node", _any),
    f"{REPLICATION}/BlockChecksum": MEMBER,
    f"{REPLICATION}/FetchBlock": MEMBER,
    f"{HEALTH}/Check": PROBE,
    f"{HEALTH}/List": PROBE,
    f"{HEALTH}/Watch": PROBE,
    f"{REFLECTION}/ServerReflectionInfo": ANY,
}

MAX_ARGUMENTS = 300
MOST_SHOWN_BYTES = 16 << 10


class NoRuleError(LookupError):
    """A method that the table does not know."""


def rule_of(service: str, method: str) -> Rule:
    """Raises NoRuleError for a method without a row."""
    rule = RULES.get(f"{service}/{method}")
    if rule is None:
        raise NoRuleError(f"{service}/{method} has no row in the table of permissions")
    return rule


def arguments_of(request: Message) -> str:
    """The fields of an administrative request that are set, in one line."""
    size = request.ByteSize()
    if size > MOST_SHOWN_BYTES:
        return f"({size} bytes)"
    return shortened(" ".join(str(request).split()), MAX_ARGUMENTS)
