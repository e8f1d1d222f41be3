"""The values of a cluster's keys, immutable, and their JSON.

ClusterRecord   state        decides who leads, and who must hold a byte before it is acknowledged
LeaderValue     leader       where the leader is; gone once its lease has expired
MemberValue     members/     what a node says of itself; gone once its lease has expired
RosterValue     roster/      that a node belongs to the cluster, or was removed from it
ConfirmedValue  confirmed    up to where every in-sync member holds the log
SettingsValue   settings     what holds for the whole cluster
RequestValue    request      a switch, or the resync of a node, that an operator wants
TermValue       history/     how an epoch began

A *session* names one start of a process. A leadership belongs to it: a process that was restarted
never continues a term, whatever its disk says. Values that cannot be read raise ValueError, and the
caller names the key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..frame_limits import MAX_EPOCH
from ..state import Member

ValueT = TypeVar("ValueT")

SWITCHOVER = "switchover"
FORCED = "failover"
REINIT = "reinit"
NOT_KNOWN = -1


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The record. Every acknowledged byte of sync replication is durable on each member of
    `in_sync`. `version` grows with each change of the set; `unclean_epoch` is the newest epoch that
    may have begun without acknowledged bytes, 0 for none; `known` are ids of nodes that are in the
    set or were."""

    epoch: int
    leader: Member
    session: str
    in_sync: frozenset[Member]
    version: int = 1
    reason: str = ""
    unclean_epoch: int = 0
    known: frozenset[str] = frozenset()

    def led_by(self, member: Member, session: str) -> bool:
        """Whether this start of that node is the leader."""
        return self.leader == member and self.session == session


@dataclass(frozen=True, slots=True)
class LeaderValue:
    """The holder of the lease. Endpoints are host:port."""

    node_id: str
    session: str
    epoch: int
    endpoint: str
    http_endpoint: str = ""


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A node that is up. `accepted_epoch`: the highest epoch that it has led or followed;
    `last_epoch` and `end_offset`: the last byte of its log; `obstacle`: why it must not lead now,
    empty if it may; `lease`: that of this key, as the coordinator gives it."""

    node_id: str
    incarnation: str
    session: str
    endpoint: str
    http_endpoint: str = ""
    store_host: str = ""
    accepted_epoch: int = 0
    last_epoch: int = 0
    end_offset: int = 0
    priority: int = 0
    obstacle: str = ""
    lease: int = 0
    rocketmq_endpoint: str = ""
    rocketmq_grpc_endpoint: str = ""

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.incarnation)

    @property
    def newest_epoch(self) -> int:
        """The highest epoch that this node knows. A log that was restored, or that a broker wrote,
        has terms that the node has neither led nor followed."""
        return max(self.accepted_epoch, self.last_epoch)

    @property
    def standing(self) -> tuple[int, int, int]:
        """The more, the better a leader: the newest history first, then the longest log."""
        return self.last_epoch, self.end_offset, self.priority


@dataclass(frozen=True, slots=True)
class RosterValue:
    """`starts`: how often the node has started; a disk that counts fewer was rolled back."""

    starts: int = 0
    removed: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmedValue:
    """The leader of epoch `term` had confirmed the log below `offset`; its last byte is one of
    `epoch`, 0 if that is not known."""

    offset: int
    epoch: int
    term: int


@dataclass(frozen=True, slots=True)
class SettingsValue:
    """`paused`: no node takes over by itself."""

    paused: bool = False


@dataclass(frozen=True, slots=True)
class RequestValue:
    """`kind` is SWITCHOVER, FORCED or REINIT; `target` may be empty for a switchover: the best one.
    `outcome` says why it was given up, empty while the request waits. `force`, of a REINIT: the
    target need not wait until it has left the in-sync set."""

    kind: str
    target: str
    request_id: str
    outcome: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class TermValue:
    """`began_ms` is the winner's wall clock in milliseconds since 1970. `lost_bytes`, of an unclean
    term: at most so many acknowledged bytes it began without; NOT_KNOWN until the leader before has
    come back on the disk that it had."""

    epoch: int
    leader: str
    reason: str
    began_ms: int
    unclean: bool = False
    end_offset: int = 0
    lost_bytes: int = NOT_KNOWN


def encode(value: object) -> bytes:
    """`value` (one of this module's) as JSON with sorted keys."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode()


def decode_record(data: bytes) -> ClusterRecord:
    """Raises ValueError, as all of these."""
    fields = _fields(data, ClusterRecord)
    try:
        fields["leader"] = _member(fields["leader"])
        fields["in_sync"] = frozenset(_member(each) for each in fields["in_sync"])
        fields["known"] = frozenset(str(each) for each in fields.get("known", ()))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a part is missing or of a wrong kind: {error!r}") from error
    record = _made(ClusterRecord, fields)
    if not 0 < record.epoch <= MAX_EPOCH or not 0 <= record.unclean_epoch <= record.epoch:
        raise ValueError(f"epoch {record.epoch} (unclean {record.unclean_epoch}) is out of range")
    if not record.in_sync:
        raise ValueError("the in-sync set is empty")
    return record


def decode(kind: type[ValueT], data: bytes) -> ValueT:
    """One of the flat values."""
    return _made(kind, _fields(data, kind))


def _made(kind: type[ValueT], fields: Mapping[str, Any]) -> ValueT:
    try:
        value = kind(**fields)
    except TypeError as error:
        raise ValueError(f"a key of {kind.__name__} is missing: {error}") from error
    for name, default in _types(kind).items():
        if not isinstance(getattr(value, name), default):
            raise ValueError(f"{name} is {getattr(value, name)!r}")
    return value


def _types(kind: type[object]) -> dict[str, type]:
    plain = (str, int, bool, frozenset, Member)
    hints = getattr(kind, "__annotations__", {})
    bases = {name: getattr(hint, "__origin__", hint) for name, hint in hints.items()}
    return {name: base for name, base in bases.items() if base in plain}


def _fields(data: bytes, kind: type[object]) -> dict[str, Any]:
    """The fields that `kind` has; newer versions may write more."""
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    names = getattr(kind, "__annotations__", {})
    return {name: value for name, value in content.items() if name in names}


def _plain(value: object) -> object:
    if isinstance(value, str | int):
        return value
    if isinstance(value, frozenset):
        return sorted((_plain(each) for each in value), key=json.dumps)
    if isinstance(value, Member):
        return [value.node_id, value.incarnation]
    names = getattr(type(value), "__annotations__", {})
    # the coordinator says which lease a key has
    return {name: _plain(getattr(value, name)) for name in names if name != "lease"}


def _member(pair: object) -> Member:
    if not isinstance(pair, list) or [type(each) for each in pair] != [str, str]:
        raise ValueError(f"{pair!r} is not a pair of node and incarnation")
    return Member(*pair)
