"""The clients that have a Telemetry stream here, by what they are asked about.

    settings of a producer ─▶ its topics       a transaction that it begins ─▶ that topic too
    a check of topic T ─▶ one stream of a producer of T, each in its turn

A client, which is its identity and its id, opens a stream to several nodes, and maybe several to
one: it is one client, and is asked once. Another node hands the streams of its producers on to the
master (telemetry_relay.py), so that the master finds them here. Pure.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.client_settings import CONSUMERS
from tandemlog_server.rocketmq.messaging.resources import full_name

from .messaging_call import MessagingCall

QUEUED: Final = 256
"""Commands that wait for a client to take them; older ones are asked about again."""
TRANSACTING_KEPT: Final = 65_536


class ClientSession:
    """One stream. `version` counts its settings; `group` is that of a consumer, else empty."""

    def __init__(self, call: MessagingCall) -> None:
        self.call = call
        self.settings: v2.Settings | None = None
        self.version = 0
        self.topics: frozenset[str] = frozenset()
        self.group = ""
        self.waiting: deque[v2.TelemetryCommand] = deque(maxlen=QUEUED)

    @property
    def is_producer(self) -> bool:
        return self.settings is not None and self.settings.client_type == v2.PRODUCER

    def set(self, settings: v2.Settings) -> None:
        self.settings = settings
        self.version += 1
        self.topics = frozenset(map(full_name, settings.publishing.topics))
        consumes = settings.client_type in CONSUMERS
        self.group = full_name(settings.subscription.group) if consumes else ""


class ClientSessions:
    """See the module."""

    def __init__(self) -> None:
        self._sessions: dict[ClientSession, None] = {}
        self._transacting: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, session: ClientSession) -> None:
        self._sessions[session] = None

    def remove(self, session: ClientSession) -> None:
        self._sessions.pop(session, None)

    def transacts(self, call: MessagingCall, topic: str) -> None:
        """The client has sent a half to `topic`."""
        key = *_client(call), topic
        self._transacting[key] = None
        self._transacting.move_to_end(key)
        while len(self._transacting) > TRANSACTING_KEPT:
            self._transacting.popitem(last=False)

    def producers(self, topic: str) -> list[ClientSession]:
        """One stream of each client that sends to `topic`, each time another one first."""
        by_client: dict[tuple[str, str], ClientSession] = {}
        for session in self._sessions:
            if session.is_producer and self._sends_to(session, topic):
                # the newest stream is the one that lives
                by_client[_client(session.call)] = session
        found = list(by_client.values())
        self._turn += 1
        first = self._turn % len(found) if found else 0
        return found[first:] + found[:first]

    def all(self) -> Iterable[ClientSession]:
        return list(self._sessions)

    @property
    def client_count(self) -> int:
        """Clients that have sent settings."""
        return len({_client(each.call) for each in self._sessions if each.settings is not None})

    def member_counts(self) -> dict[str, int]:
        """Group -> its consumers."""
        members = {(each.group, _client(each.call)) for each in self._sessions if each.group}
        return dict(Counter(group for group, _ in members))

    def _sends_to(self, session: ClientSession, topic: str) -> bool:
        return topic in session.topics or (*_client(session.call), topic) in self._transacting


def _client(call: MessagingCall) -> tuple[str, str]:
    return call.caller.name, call.client_id
