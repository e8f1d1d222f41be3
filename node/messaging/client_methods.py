"""Heartbeat and NotifyClientTermination: whether a client lives.

The master renews leases of push consumers that live, so both are handed on to it; while there is
none, a heartbeat is answered at once, since a client reads nothing in it.
"""

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import group_of

from ..access.identities import Right
from .messaging_call import Answers, MessagingCall, Method
from .renewed_leases import RenewedLeases, who_of


class ClientMethods:
    """See the module; belongs to the loop."""

    def __init__(self, renewed: RenewedLeases) -> None:
        self._renewed = renewed

    def methods(self) -> list[Method]:
        return [
            Method(
                "Heartbeat",
                v2.HeartbeatRequest,
                v2.HeartbeatResponse,
                self.heartbeat,
                parks=False,
                without_master=made_status(v2.OK),
            ),
            Method(
                "NotifyClientTermination",
                v2.NotifyClientTerminationRequest,
                v2.NotifyClientTerminationResponse,
                self.termination,
                parks=False,
                without_master=made_status(v2.OK),
            ),
        ]

    async def heartbeat(self, request: v2.HeartbeatRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError and DeniedError."""
        _check(request.group, call)
        if request.client_type == v2.PUSH_CONSUMER:
            self._renewed.heard(who_of(call))
        return [v2.HeartbeatResponse(status=made_status(v2.OK))]

    async def termination(
        self, request: v2.NotifyClientTerminationRequest, call: MessagingCall
    ) -> Answers:
        """Raises MessagingRefusedError and DeniedError."""
        _check(request.group, call)
        await self._renewed.goodbye(who_of(call))
        return [v2.NotifyClientTerminationResponse(status=made_status(v2.OK))]


def _check(group: v2.Resource, call: MessagingCall) -> None:
    if not call.client_id:
        raise MessagingRefusedError(
            v2.CLIENT_ID_REQUIRED, "the call has no header x-mq-client-id, or a very long one"
        )
    if group.name:
        call.caller.require(Right.CONSUME, [group_of(group)])
