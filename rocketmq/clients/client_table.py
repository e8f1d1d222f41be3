"""Who is connected: clients by connection, and the groups that they make. Pure: `now` comes in.

    heartbeat (connection, client, groups) ─▶ clients ─▶ members of a group, subscriptions
    unregister, closed, 120 s of silence   ─▶    │
                                                 ▼
          Changes: tell these connections that their list has changed, prepare these groups

A consumer balances itself: it sorts the list of its group's members, and takes its part. So the
list is the same for each of them, and sorted. A member is a client's id; it is one as long as one
of its connections lives, so that a client which comes back by a new connection is not two members.
An id is no secret, and anyone may call a client so: what is for one client alone goes to the
identity that has the id first, until no connection has it any more.

Bounds: `clients` and `total_bytes` (of heartbeats, which are what is remembered) for the node, with
a share for each holder (storage/shares.py), and `members` for one group. A client that is there may
always say that it lives.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from tandemlog.format.words import counted, quoted
from tandemlog_server.storage.shares import Shares

from .heartbeats import BROADCASTING, Consumer, Heartbeat, Subscription

SILENCE_S: Final = 120.0
"""RocketMQ's: a client without a heartbeat for so long is gone."""
IDS_OF_A_CONNECTION: Final = 16

C = TypeVar("C")


class TooManyClientsError(Exception):
    """No room for one more; the text says whose bound it is."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """`total_bytes` is that of heartbeats."""

    clients: int = 10_000
    members: int = 1_000
    """Of one group."""
    total_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class About:
    """A client as its connection shows it, for people: `version` is RocketMQ's number. `identity`
    is the name by which it has proved who it is, empty where clients do not have to."""

    address: str = ""
    language: str = ""
    version: int = 0
    holder: str = ""
    identity: str = ""


@dataclass(slots=True)
class Changes(Generic[C]):
    """What is to be done: `notify` (group, connection) that the list of the group has changed;
    `begun` are groups whose first member came."""

    notify: list[tuple[str, C]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Client(Generic[C]):
    """One client id on one connection. `now` of its last heartbeat in `heard_at`."""

    connection: C
    client_id: str
    about: About
    heard_at: float = 0.0
    size: int = 0
    producers: frozenset[str] = frozenset()
    consumers: dict[str, Consumer] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.producers and not self.consumers


class ClientTable(Generic[C]):
    """See the module. Belongs to the loop."""

    def __init__(self, limits: ClientLimits | None = None) -> None:
        self.limits = limits if limits is not None else ClientLimits()
        self._clients: dict[tuple[C, str], Client[C]] = {}
        self._ids: dict[C, list[str]] = {}
        # clients in the order in which they were heard
        self._consumers: dict[str, dict[tuple[C, str], Client[C]]] = {}
        self._producers: dict[str, dict[tuple[C, str], Client[C]]] = {}
        self._counts = Shares(self.limits.clients)
        self._bytes = Shares(self.limits.total_bytes)
        self._turns: dict[str, int] = {}
        self._by_id: dict[str, dict[C, Client[C]]] = {}
        self._owners: dict[str, str] = {}  # identities by client id
        # of groups that were asked for, until a member says something else: a pull asks each time
        self._wanted: dict[str, dict[str, Subscription]] = {}

    # ---- what clients say

    def heartbeat(
        self, connection: C, about: About, heartbeat: Heartbeat, now: float
    ) -> Changes[C]:
        """Raises TooManyClientsError for a client, or a member, that has no room."""
        key = connection, heartbeat.client_id
        client = self._clients.get(key)
        if client is not None and heartbeat.without_subscriptions:
            client.heard_at = now
            return Changes()
        consumers = {each.group: each for each in heartbeat.consumers}
        self._check_members(heartbeat.client_id, consumers)
        if client is None:
            client = self._admit(connection, about, heartbeat)
        else:
            self._resize(client, heartbeat.size)
        client.heard_at = now
        changes: Changes[C] = Changes()
        self._set_producers(key, client, heartbeat.producers)
        self._set_consumers(key, client, consumers, changes)
        return changes

    def knows(self, connection: C, client_id: str) -> bool:
        return (connection, client_id) in self._clients

    def unregister(
        self, connection: C, client_id: str, producer_group: str = "", consumer_group: str = ""
    ) -> Changes[C]:
        """The client has ended these; empty for none."""
        key, changes = (connection, client_id), Changes[C]()
        client = self._clients.get(key)
        if client is None:
            return changes
        self._set_producers(key, client, client.producers - {producer_group})
        left = {name: each for name, each in client.consumers.items() if name != consumer_group}
        self._set_consumers(key, client, left, changes)
        if client.empty:
            self._drop(key, changes)
        return changes

    def closed(self, connection: C) -> Changes[C]:
        """The connection has ended, and with it its clients."""
        changes: Changes[C] = Changes()
        for client_id in list(self._ids.get(connection, ())):
            self._drop((connection, client_id), changes)
        changes.notify = [each for each in changes.notify if each[1] != connection]
        return changes

    def expire(self, now: float) -> Changes[C]:
        """Drop who was silent for too long."""
        changes: Changes[C] = Changes()
        silent = [key for key, each in self._clients.items() if now - each.heard_at > SILENCE_S]
        for key in silent:
            self._drop(key, changes)
        return changes

    # ---- who there is

    @property
    def clients(self) -> Iterable[Client[C]]:
        return self._clients.values()

    @property
    def client_count(self) -> int:
        return len(self._clients)

    def consumer_ids(self, group: str) -> list[str]:
        """The members of `group`, sorted: the same list for each caller."""
        return sorted({each.client_id for each in self._consumers.get(group, {}).values()})

    def members(self, group: str) -> list[Client[C]]:
        """By client id; of one with several connections the newest."""
        newest = {each.client_id: each for each in self._consumers.get(group, {}).values()}
        return [newest[client_id] for client_id in sorted(newest)]

    def member(self, group: str, client_id: str) -> Client[C] | None:
        found = None
        for each in self._consumers.get(group, {}).values():
            if each.client_id == client_id:
                found = each
        return found

    def producers(self, group: str) -> list[Client[C]]:
        """Those that send as `group`, the one that was heard first at the front."""
        return list(self._producers.get(group, {}).values())

    def next_producer(self, group: str) -> Client[C] | None:
        """One of them, each in its turn: for a question that any of them can answer."""
        clients = self.producers(group)
        if not clients:
            self._turns.pop(group, None)
            return None
        turn = self._turns.get(group, 0)
        self._turns[group] = turn + 1
        return clients[turn % len(clients)]

    def client(self, client_id: str) -> Client[C] | None:
        """The newest connection of this client: for an answer to it alone."""
        owner = self._owners.get(client_id)
        newest_first = reversed(self._by_id.get(client_id, {}).values())
        return next((each for each in newest_first if each.about.identity == owner), None)

    def groups(self) -> list[str]:
        """Those that have members."""
        return sorted(self._consumers)

    def producer_groups(self) -> list[str]:
        return sorted(self._producers)

    def member_counts(self) -> dict[str, int]:
        return {group: len(self.consumer_ids(group)) for group in self._consumers}

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group wants of `topic`: by the member that subscribed last."""
        return self.subscriptions(group).get(topic)

    def subscriptions(self, group: str) -> Mapping[str, Subscription]:
        """By topic, as `subscription` has them."""
        wanted = self._wanted.get(group)
        if wanted is None:
            wanted = {}
            for client in self._consumers.get(group, {}).values():
                for each in client.consumers[group].subscriptions:
                    if each.topic not in wanted or each.version >= wanted[each.topic].version:
                        wanted[each.topic] = each
            if wanted:
                self._wanted[group] = wanted
        return wanted

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups with a member that subscribes to `topic`."""
        return [group for group in sorted(self._consumers) if topic in self.subscriptions(group)]

    def consumer(self, group: str) -> Consumer | None:
        """How the group consumes, by the member that was heard last in it."""
        clients = list(self._consumers.get(group, {}).values())
        return max(clients, key=lambda each: each.heard_at).consumers[group] if clients else None

    def broadcasts(self, group: str) -> bool:
        """Whether each member has all messages, and keeps its offsets itself."""
        consumer = self.consumer(group)
        return consumer is not None and consumer.model == BROADCASTING

    # ---- changes

    def _check_members(self, client_id: str, groups: Iterable[str]) -> None:
        for group in groups:
            ids = {each.client_id for each in self._consumers.get(group, {}).values()}
            if client_id not in ids and len(ids) >= self.limits.members:
                raise TooManyClientsError(
                    f"group {quoted(group)} has {counted(len(ids), 'member')}, which is the most; "
                    "end one of them first"
                )

    def _admit(self, connection: C, about: About, heartbeat: Heartbeat) -> Client[C]:
        if len(self._ids.get(connection, ())) >= IDS_OF_A_CONNECTION:
            raise TooManyClientsError(
                f"this connection has {IDS_OF_A_CONNECTION} clients, which is the most"
            )
        holder = about.holder
        self._check_share(self._counts, holder, 1, "clients")
        self._check_share(self._bytes, holder, heartbeat.size, "bytes of heartbeats")
        self._counts.take(holder)
        self._bytes.take(holder, heartbeat.size)
        client = Client(connection, heartbeat.client_id, about, size=heartbeat.size)
        self._clients[connection, heartbeat.client_id] = client
        self._ids.setdefault(connection, []).append(heartbeat.client_id)
        self._by_id.setdefault(heartbeat.client_id, {})[connection] = client
        self._owners.setdefault(heartbeat.client_id, about.identity)
        return client

    def _check_share(self, shares: Shares, holder: str, amount: int, what: str) -> None:
        if not shares.may_take(holder, amount):
            raise TooManyClientsError(
                f"{quoted(holder)} has {shares.of(holder)} {what} on this node, its share of "
                f"{shares.limit} is {shares.most(holder)}: end clients, or use another node"
            )

    def _resize(self, client: Client[C], size: int) -> None:
        more, holder = size - client.size, client.about.holder
        if more > 0:
            self._check_share(self._bytes, holder, more, "bytes of heartbeats")
        self._bytes.take(holder, more)
        client.size = size

    def _set_producers(self, key: tuple[C, str], client: Client[C], groups: frozenset[str]) -> None:
        for group in client.producers - groups:
            _take_out(self._producers, group, key)
        for group in groups - client.producers:
            self._producers.setdefault(group, {})[key] = client
        client.producers = groups

    def _set_consumers(
        self,
        key: tuple[C, str],
        client: Client[C],
        consumers: dict[str, Consumer],
        changes: Changes[C],
    ) -> None:
        before, changed = client.consumers, []
        if before == consumers:
            return
        for group in before.keys() | consumers.keys():
            self._wanted.pop(group, None)
        for group in before.keys() - consumers.keys():
            changed.append((group, self.consumer_ids(group)))
            _take_out(self._consumers, group, key)
        for group in consumers.keys() - before.keys():
            if group not in self._consumers:
                changes.begun.append(group)
            changed.append((group, self.consumer_ids(group)))
            self._consumers.setdefault(group, {})[key] = client
        client.consumers = consumers
        changed = [each for each in changed if self.consumer_ids(each[0]) != each[1]]
        changes.notify += self._connections(group for group, _ in changed)
        # other topics make another balance of the same members
        for group in before.keys() & consumers.keys():
            if _topics(before[group]) != _topics(consumers[group]):
                changes.notify += self._connections([group])

    def _connections(self, groups: Iterable[str]) -> Iterator[tuple[str, C]]:
        for group in groups:
            yield from ((group, each.connection) for each in self.members(group))

    def _drop(self, key: tuple[C, str], changes: Changes[C]) -> None:
        client = self._clients.pop(key)
        ids = self._ids[key[0]]
        ids.remove(key[1])
        if not ids:
            del self._ids[key[0]]
        del self._by_id[key[1]][key[0]]
        if not self._by_id[key[1]]:
            del self._by_id[key[1]], self._owners[key[1]]
        self._counts.give_back(client.about.holder)
        self._bytes.give_back(client.about.holder, client.size)
        self._set_producers(key, client, frozenset())
        self._set_consumers(key, client, {}, changes)


def _topics(consumer: Consumer) -> set[str]:
    return {each.topic for each in consumer.subscriptions}


def _take_out(
    groups: dict[str, dict[tuple[C, str], Client[C]]], group: str, key: tuple[C, str]
) -> None:
    clients = groups[group]
    del clients[key]
    if not clients:
        del groups[group]
