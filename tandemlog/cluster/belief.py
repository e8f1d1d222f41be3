"""Which answers describe one cluster: two masters that know nothing of each other may answer.

    elects, cluster_uuid X   n0, n1   X gives its epochs by compare-and-set at one coordinator
    by configuration         n2       started without [coordinator]: leads in an epoch of its own
    elects, cluster_uuid Y   n2       started with another coordinator: the same

Epochs of different origins cannot be compared: the higher one of n2 is no newer term. So a client
goes by the origin that most nodes have, and a cluster that it has seen elect is left only where
more than half of all nodes that it knows have another origin: then the cluster was founded again,
or has ended its elections. Otherwise a master that was not elected is not believed, also while no
other node answers.

A node has a vote where the caller, a node believed before, or a node of another origin names its
endpoint: a foreign cluster does not win by naming its own nodes, which may have the same ids.

Until it is known where a cluster gets its epochs, the master that answers first is not taken before
the caller's other endpoints have had their time (`is_settled`). All of this is pure.
"""

from collections.abc import Collection, Iterable, Mapping

from ..v1 import admin_pb2

Answers = Mapping[str, admin_pb2.DescribeClusterResponse]

CONFIGURED = "configured"
"""The origin of epochs that a configured master takes by itself. Else it is the cluster_uuid, or
empty for a node that elects and did not say it: an older one, or one before its first term."""


def origin_of(answer: admin_pb2.DescribeClusterResponse) -> str:
    """Where the answering node gets its epoch."""
    return answer.coordinator.cluster_uuid if answer.HasField("coordinator") else CONFIGURED


def believed_origin(
    answers: Answers, held: str, known: Iterable[str], given: Collection[str] | None = None
) -> str:
    """The origin that the picture is made of. `held` is that of the picture before, `known` the ids
    of all nodes that it showed, `given` the endpoints whose answers have a vote (None: all)."""
    origins = {endpoint: origin_of(each) for endpoint, each in answers.items()}
    if not origins:
        return held
    owner = _owner_of_silent(list(origins.values()), held)
    origins = {endpoint: origin or owner for endpoint, origin in origins.items()}
    nodes: dict[str, set[str]] = {origin: set() for origin in origins.values()}
    votes: dict[str, set[str]] = {origin: set() for origin in origins.values()}
    for endpoint, each in answers.items():
        origin = origins[endpoint]
        nodes[origin].add(each.answered_by)
        if given is None or endpoint in given or _is_named(endpoint, origin, answers, origins):
            votes[origin].add(each.answered_by)
    epochs = {
        origin: max(claim(each) for at, each in answers.items() if origins[at] == origin)
        for origin in nodes
    }

    def weight(origin: str) -> tuple[int, int, bool, bool, int, str]:
        return (
            len(votes[origin]),
            len(nodes[origin]),
            origin != CONFIGURED,
            origin == held,
            epochs[origin],
            origin,
        )

    best = max(nodes, key=weight)
    if held in ("", CONFIGURED) or best == held:
        return best
    every = {*known, *(each.answered_by for each in answers.values())}
    more = len(votes[best]) > len(votes.get(held, ()))
    return best if more and 2 * len(votes[best]) > len(every) else held


def _owner_of_silent(origins: list[str], held: str) -> str:
    """A node that elects and does not say more belongs to the others that elect."""
    elected = [each for each in origins if each not in ("", CONFIGURED)]
    if not elected:
        return held if held not in ("", CONFIGURED) else ""
    return max(elected, key=lambda each: (each == held, elected.count(each), each))


def _is_named(endpoint: str, origin: str, answers: Answers, said: Mapping[str, str]) -> bool:
    """Whether a node of another origin names it."""
    return any(
        said[at] != origin and any(row.endpoint == endpoint for row in each.nodes)
        for at, each in answers.items()
    )


def is_settled(
    answer: admin_pb2.DescribeClusterResponse, held: str | None, *, all_given: bool
) -> bool:
    """Whether a client need not wait long for others behind this answer: it is a master's, and
    either all endpoints that the caller gave have answered or refused (`all_given`), or it is of
    the cluster that the client knew before (`held`, None if it knew none), or proves that this one
    elects now."""
    if not answer.master_id or answer.answered_by != answer.master_id:
        return False
    if all_given or held is None:
        return all_given
    return fits(origin_of(answer), held) or held == CONFIGURED


def fits(origin: str, believed: str) -> bool:
    """Whether a node of `origin` may be one of the cluster whose epochs come from `believed`."""
    return origin == believed or (CONFIGURED not in (origin, believed) and "" in (origin, believed))


def why_not_believed(
    answer: admin_pb2.DescribeClusterResponse, believed: str, member_at: str = ""
) -> str:
    """What to do about a node of another origin. `member_at` is the endpoint of the cluster's own
    node of the same id, if that is another one."""
    origin, epoch = origin_of(answer), _own_epoch(answer)
    leads = answer.master_id == answer.answered_by
    role = f"is a master (epoch {epoch})" if leads else "has a role"
    if origin == CONFIGURED:
        text = f"it {role} by its configuration, but this cluster elects its master"
        way_out = "Stop it, put its coordinator.endpoints back, and start it"
    elif believed == CONFIGURED:
        text = f"it {role} by an election, but the roles of this cluster are configured"
        way_out = "Stop it, and correct its configuration"
    else:
        text = (
            f"it {role} of the elected cluster {origin or '(not told)'}, the other nodes belong to "
            f"{believed}"
        )
        way_out = "Stop it, correct its coordinator.endpoints, and start it"
    if member_at:
        way_out = (
            f"It has the id of {answer.answered_by}, which is at {member_at}: stop it, or take its "
            "address out of the endpoints that clients have"
        )
    return f"{text}: nothing that it takes is in the cluster. {way_out}"


def why_not_used(answer: admin_pb2.DescribeClusterResponse, member_at: str) -> str:
    """What to do about a second process of one id and one origin."""
    name = answer.answered_by
    return (
        f"it also has the id {name}, as the node at {member_at} does, to which clients go: stop "
        "it, and give each node an id and a disk of its own"
    )


def counted_epoch(answer: admin_pb2.DescribeClusterResponse) -> int:
    """Up to which epoch the answering node may speak of terms. One that does not lead may once have
    led by its configuration: of it counts what its coordinator has given."""
    epoch, coordinator = _own_epoch(answer), answer.coordinator
    if answer.master_id == answer.answered_by or not coordinator.cluster_uuid:
        return epoch
    return min(epoch, coordinator.epoch)


def ahead(answer: admin_pb2.DescribeClusterResponse, given: int) -> str:
    """Why reads must not go to the answering node, if it has seen an epoch above `given`, the
    newest that the coordinator gave as far as any node knows; empty if it has not."""
    epoch = _own_epoch(answer)
    if not answer.coordinator.cluster_uuid or not 0 < given < epoch:
        return ""
    return (
        f"it has seen epoch {epoch}, but the coordinator has given {given} at most: it was a "
        "master by its configuration, or the coordinator's data is older than the cluster. "
        "docs/operations.md, A node is ahead of the coordinator"
    )


def claim(answer: admin_pb2.DescribeClusterResponse) -> int:
    """The epoch in which it says that it is the master; 0 if it does not."""
    return _own_epoch(answer) if answer.master_id == answer.answered_by else 0


def _own_epoch(answer: admin_pb2.DescribeClusterResponse) -> int:
    return max((row.epoch for row in answer.nodes if row.node_id == answer.answered_by), default=0)
