"""Which producers are asked about transactions."""

from typing import Any, cast

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.access.access_refusals import NotKnownError
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity
from tandemlog_server.node.messaging.client_sessions import ClientSession, ClientSessions
from tandemlog_server.node.messaging.messaging_call import MessagingCall
from tandemlog_server.node.messaging.orphan_checks import OrphanChecks


class Board:
    """One check waits at topic T; it counts who is asked."""

    groups = ("T",)

    def __init__(self) -> None:
        self.taken = 0

    def take(self, *_: Any) -> list[str]:
        self.taken += 1
        return []


class Work:
    leads = True

    def __init__(self) -> None:
        self.board = Board()


class Keeper:
    """Knows the identities with these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def renew(self, who: Who) -> None:
        if who.identity.name not in self._names:
            raise NotKnownError("it was taken out of the access file")


def producer(identity: str, keeper: Keeper) -> ClientSession:
    caller = Caller("peer", who=Who(Identity(identity), frozenset()), keeper=cast("Any", keeper))
    session = ClientSession(MessagingCall(caller, "client-1"))
    said = v2.Settings(client_type=v2.PRODUCER)
    said.publishing.topics.add(name="T")
    session.set(said)
    return session


async def test_a_producer_that_is_not_known_any_more_is_not_asked() -> None:
    sessions, work = ClientSessions(), Work()
    checks = OrphanChecks(cast("Any", None), cast("Any", work), cast("Any", None), sessions)
    keeper = Keeper("orders")
    sessions.add(producer("revoked", keeper))
    await checks.look()
    assert work.board.taken == 0
    sessions.add(producer("orders", keeper))
    await checks.look()
    assert work.board.taken == 1


def test_two_identities_with_one_client_id_are_two_clients() -> None:
    sessions, keeper = ClientSessions(), Keeper()
    both = [producer(name, keeper) for name in ("orders", "other")]
    for each in both:
        sessions.add(each)
    again = producer("orders", keeper)
    sessions.add(again)
    assert set(sessions.producers("T")) == {both[1], again}
