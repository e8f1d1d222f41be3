"""Who may open a replication stream: the proofs of a call, for ha/protocol/proof.py."""

from dataclasses import dataclass
from typing import Any, cast

from tandemlog_server.ha.protocol.proof import NodeProof, Prove, ProvenCall
from tandemlog_server.ha.protocol.replication_service import METHOD, Context

from ..access.access_refusals import NotKnownError
from ..access.caller import Who
from ..access.doorkeeper import Doorkeeper
from .call_door import proofs_of
from .strangers import refuse


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a caller that is known."""

    keeper: Doorkeeper
    who: Who
    peer: str

    def proof(self) -> NodeProof:
        who = self.who
        try:
            self.keeper.renew(who)
        except NotKnownError as error:
            return NodeProof(who.identity.name, fault=str(error))
        return NodeProof(who.identity.name, who.nodes, who.proof_fault)

    def refused(self, reason: str) -> None:
        self.keeper.audit.refused(METHOD, self.who.identity.name, self.peer, reason)


def _keep(keeper: Doorkeeper, peer: str, context: Context) -> None:
    """While the stream is open, its connection is not idle."""
    keeper.streaming.add(peer)
    cast("Any", context).add_done_callback(lambda _: keeper.streaming.discard(peer))


def proof_by(keeper: Doorkeeper) -> Prove:
    """Asks `keeper` for the caller of a stream; one that is not known gets UNAUTHENTICATED."""

    async def prove(context: Context) -> ProvenCall | None:
        peer = context.peer()
        _keep(keeper, peer, context)
        if not keeper.active:
            return None
        try:
            certificates = keeper.certificates_required
            who = keeper.identify(*proofs_of(cast("Any", context), certificates=certificates))
        except NotKnownError as error:
            keeper.audit.refused(METHOD, "", peer, str(error))
            await refuse(context, str(error))
        return _Call(keeper, who, peer)

    return prove
