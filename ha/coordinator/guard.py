"""Whose answers count: an endpoint that fell behind, or is another cluster, is not believed. Pure.

    the answer comes from                          then
    another cluster than the first answer did      refused: the list of endpoints is wrong
    an endpoint whose raft term went backwards     refused: its disk was rolled back or exchanged
    a store below a revision that was seen before  refused: a stale read, or a restored backup
      the request was sent

Revisions are compared for a linearizable answer alone: others may lag. What was seen is taken
before a request is sent, because answers of two requests may overtake each other.
"""

from dataclasses import dataclass, field

from tandemlog.v1 import coordinator_pb2 as pb


@dataclass(frozen=True, slots=True)
class Seen:
    """What was known when a request was sent to one endpoint."""

    term: int
    revision: int


@dataclass(slots=True)
class AnswerGuard:
    """What the answers so far have told. One per client."""

    cluster_id: int = 0
    revision: int = 0
    terms: dict[str, int] = field(default_factory=dict)

    def seen(self, endpoint: str) -> Seen:
        """To be taken before a request is sent to `endpoint`."""
        return Seen(self.terms.get(endpoint, 0), self.revision)

    def fault(
        self, endpoint: str, header: pb.ResponseHeader, before: Seen, *, linearizable: bool
    ) -> str:
        """Why the answer with `header` must not be believed; empty where it may."""
        if self.cluster_id not in (0, header.cluster_id):
            return (
                f"{endpoint} belongs to cluster {header.cluster_id:x}, this client has talked to "
                f"cluster {self.cluster_id:x}: correct the endpoints"
            )
        if header.raft_term < before.term:
            return (
                f"the raft term of {endpoint} went back from {before.term} to {header.raft_term}: "
                "its data was rolled back or replaced"
            )
        if linearizable and header.revision < before.revision:
            return (
                f"the revision of {endpoint} went back from {before.revision} to "
                f"{header.revision}: a stale answer, or data restored from a backup"
            )
        return ""

    def believe(self, endpoint: str, header: pb.ResponseHeader) -> None:
        """Take over what an answer without fault tells."""
        self.cluster_id = self.cluster_id or header.cluster_id
        self.terms[endpoint] = max(self.terms.get(endpoint, 0), header.raft_term)
        self.revision = max(self.revision, header.revision)
