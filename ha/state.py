"""What a node's replication must remember across restarts, and the values it is made of.

incarnation      names this disk's history: a new one after lost data, so that acknowledgements
                 of the old disk count for nothing
accepted_epoch   the highest epoch this node has followed or led: nothing lower is accepted
followed         the master of that epoch and its disk: the same master with another disk has
                 lost what was acknowledged, however high its epoch is
cluster_uuid     the cluster whose coordinator this node obeys; empty with configured roles
starts           how often this store was started with a coordinator, which counts too: a disk that
                 counts fewer was rolled back, and gets a new incarnation
record           the in-sync set of the last term as master. If it is the newest settled record
                 of all nodes, every acknowledged byte is durable on each of its members. A
                 coordinator's record has the same shape.

Values from other nodes have limits: an epoch that no cluster reaches comes from a damaged file or
an unknown node, and the node does not start with it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .errors import StateFileError
from .frame_limits import MAX_EPOCH

MAX_KNOWN_NODES = 128
VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A node in one incarnation."""

    node_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class InSyncRecord:
    """The in-sync set of `epoch`; `version` grows with every change of the set.

    `unheard`: members that may hold acknowledged bytes which this master lost in a crash of its
    machine. They stay in the set until they have followed once. `known`: ids of the nodes that are
    in this set or were in an earlier one, as far as this node knows; at most MAX_KNOWN_NODES. They
    may raise an alarm, which other nodes may not.

    `settled`: each member has followed in this epoch, so it holds every acknowledged byte. With
    configured roles a term begins with the set that its master recorded last, and may have slept
    through terms of others since; nothing is acknowledged before the set is settled.
    """

    epoch: int = 0
    version: int = 0
    members: frozenset[Member] = frozenset()
    unheard: frozenset[Member] = frozenset()
    known: frozenset[str] = frozenset()
    settled: bool = True


@dataclass(frozen=True, slots=True)
class HaState:
    """See the module. Immutable: a change is a new value that is persisted, then used."""

    cluster_id: str
    node_id: str
    incarnation: str
    accepted_epoch: int = 0
    followed: Member | None = None
    record: InSyncRecord = field(default_factory=InSyncRecord)
    cluster_uuid: str = ""
    starts: int = 0


def started_over(state: HaState, incarnation: str, epoch: int) -> HaState:
    """The state of a disk whose log is set aside: it counts as a new disk. Epochs above `epoch`,
    which this cluster never had, are forgotten."""
    fresh = replace(state, incarnation=incarnation)
    if state.accepted_epoch <= epoch:
        return fresh
    record = InSyncRecord(known=state.record.known)
    return replace(fresh, accepted_epoch=epoch, followed=None, record=record)


def remembered(newest: Iterable[str], before: Iterable[str]) -> frozenset[str]:
    """The ids of `newest`, and as many of `before` as there is room for."""
    first = sorted(set(newest))
    return frozenset([*first, *sorted(set(before).difference(first))][:MAX_KNOWN_NODES])


def encode_state(state: HaState) -> bytes:
    """`state` as UTF-8 JSON, members in order, so that equal states have equal bytes."""
    document = {
        "version": VERSION,
        "cluster_id": state.cluster_id,
        "node_id": state.node_id,
        "incarnation": state.incarnation,
        "accepted_epoch": state.accepted_epoch,
        "followed": None if state.followed is None else _member_out(state.followed),
        "in_sync": {
            "epoch": state.record.epoch,
            "version": state.record.version,
            "members": [_member_out(member) for member in sorted(state.record.members)],
            "unheard": [_member_out(member) for member in sorted(state.record.unheard)],
            "known": sorted(state.record.known),
            "settled": state.record.settled,
        },
        "cluster_uuid": state.cluster_uuid,
        "starts": state.starts,
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def decode_state(data: bytes) -> HaState:
    """The state in `data`; raises StateFileError if a part is missing or of a wrong kind."""
    try:
        document = json.loads(data)
        record = document["in_sync"]
        followed = document["followed"]
        state = HaState(
            cluster_id=str(document["cluster_id"]),
            node_id=str(document["node_id"]),
            incarnation=str(document["incarnation"]),
            accepted_epoch=int(document["accepted_epoch"]),
            followed=None if followed is None else _member_in(followed),
            record=InSyncRecord(
                epoch=int(record["epoch"]),
                version=int(record["version"]),
                members=frozenset(_member_in(each) for each in record["members"]),
                unheard=frozenset(_member_in(each) for each in record["unheard"]),
                known=frozenset(str(each) for each in record.get("known", ())),
                settled=bool(record.get("settled", True)),
            ),
            cluster_uuid=str(document.get("cluster_uuid", "")),
            starts=int(document.get("starts", 0)),
        )
        version = int(document.get("version", VERSION))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateFileError(f"the replication state is not readable: {error!r}") from error
    if version > VERSION:
        raise StateFileError(
            f"the replication state is of version {version}, this program reads up to {VERSION}: "
            "start the newer tandemlog that wrote it"
        )
    check_reachable(state.accepted_epoch, "accepted_epoch")
    check_reachable(state.record.epoch, "in_sync.epoch")
    return state


def check_reachable(epoch: int, name: str) -> None:
    """Raises StateFileError for an epoch that no cluster reaches."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise StateFileError(
            f"{name} is {epoch}, which no cluster reaches (the limit is {MAX_EPOCH}): the file "
            "is damaged, or this node accepted it from a node that is not part of the cluster. "
            "Stop all nodes; in each replication.json with that value, put the highest epoch "
            "of its epochFileCheckpoint there (in its last line, before the dash; 0 if it has "
            "no lines), and start the nodes"
        )


def _member_out(member: Member) -> dict[str, str]:
    return {"node_id": member.node_id, "incarnation": member.incarnation}


def _member_in(document: dict[str, object]) -> Member:
    return Member(str(document["node_id"]), str(document["incarnation"]))
