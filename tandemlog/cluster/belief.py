"""Which answers describe one cluster: two masters that know nothing of each other may answer.

    elects, cluster_uuid X   n0, n1   X gives its epochs by compare-and-set at one coordinator
    by configuration         n2       started without [coordinator]: leads in an epoch of its own
    elects, cluster_uuid Y   n2       started with another coordinator: the same

Epochs of different origins cannot be compared: the higher one of n2 is no newer term. So a client
goes by the origin that most nodes have, and a cluster that it has seen elect is left only where
more than half of all nodes that it knows have another origin: then the cluster was founded again,
or has ended its elections. Otherwise a master that was not elected is not believed, also while no
other node answers. All of this is pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from ..v1 import admin_pb2

Answers = Mapping[str, admin_pb2.DescribeClusterResponse]

CONFIGURED = "configured"
"""The origin of epochs that a configured master takes by itself. Else it is the cluster_uuid, or
empty for a node that elects and did not say it: an older one, or one before its first term."""


def origin_of(answer: admin_pb2.DescribeClusterResponse) -> str:
    """Whence the answering node has its epoch."""
    return answer.coordinator.cluster_uuid if answer.HasField("coordinator") else CONFIGURED


def believed_origin(answers: Answers, held: str, known: Iterable[str]) -> str:
    """The origin that the picture is made of. `held` is that of the picture before, `known` the ids
    of all nodes that it showed."""
    by_node = {each.answered_by: each for each in answers.values()}
    counts = Counter(origin_of(each) for each in by_node.values())
    silent = counts.pop("", 0)
    if silent and (elected := [each for each in counts if each != CONFIGURED]):
        # a node that elects and does not say more belongs to the others that elect
        counts[max(elected, key=lambda each: (each == held, counts[each]))] += silent
    elif silent:
        counts[held if held not in ("", CONFIGURED) else ""] += silent
    if not counts:
        return held
    epochs = {
        origin: max(_claim(each) for each in by_node.values() if fits(origin_of(each), origin))
        for origin in counts
    }
    best = max(counts, key=lambda each: (counts[each], each != CONFIGURED, epochs[each]))
    if held in ("", CONFIGURED) or best == held:
        return best
    return best if 2 * counts[best] > len({*known, *by_node}) else held


def fits(origin: str, believed: str) -> bool:
    """Whether a node of `origin` may be one of the cluster whose epochs come from `believed`."""
    return origin == believed or (CONFIGURED not in (origin, believed) and "" in (origin, believed))


def why_not_believed(answer: admin_pb2.DescribeClusterResponse, believed: str) -> str:
    """What to do about a node of another origin."""
    origin, epoch = origin_of(answer), _own_epoch(answer)
    leads = answer.master_id == answer.answered_by
    role = f"is a master (epoch {epoch})" if leads else "has a role"
    if origin == CONFIGURED:
        return (
            f"it {role} by its configuration, but this cluster elects its master: nothing that it "
            "takes is in the cluster. Stop it, put its coordinator.endpoints back, and start it"
        )
    if believed == CONFIGURED:
        return (
            f"it {role} by an election, but the roles of this cluster are configured: nothing that "
            "it takes is in the cluster. Stop it, and correct its configuration"
        )
    return (
        f"it {role} of the elected cluster {origin}, the other nodes belong to {believed}: stop "
        "it, correct its coordinator.endpoints, and start it"
    )


def counted_epoch(answer: admin_pb2.DescribeClusterResponse) -> int:
    """Up to which epoch the answering node may speak of terms. One that does not lead may once have
    led by its configuration: of it counts what its coordinator has given."""
    epoch, coordinator = _own_epoch(answer), answer.coordinator
    if answer.master_id == answer.answered_by or not coordinator.cluster_uuid:
        return epoch
    return min(epoch, coordinator.epoch)


def ahead(answer: admin_pb2.DescribeClusterResponse, given: int) -> str:
    """Why the answering node is none to read from, if it has seen an epoch above `given`, the
    newest that the coordinator gave as far as any node knows; empty if it has not."""
    epoch = _own_epoch(answer)
    if not answer.coordinator.cluster_uuid or not 0 < given < epoch:
        return ""
    return (
        f"it has seen epoch {epoch}, but the coordinator has given {given} at most: it was a "
        "master by its configuration, or the coordinator's data is older than the cluster. "
        "docs/operations.md, A node is ahead of the coordinator"
    )


def _claim(answer: admin_pb2.DescribeClusterResponse) -> int:
    return _own_epoch(answer) if answer.master_id == answer.answered_by else 0


def _own_epoch(answer: admin_pb2.DescribeClusterResponse) -> int:
    return max((row.epoch for row in answer.nodes if row.node_id == answer.answered_by), default=0)
