"""Members of one group, and the masters that assign its queues, under faults: a seeded simulation.

    Client ── request, late, lost, twice ──▶ Master (ConsumerGroup) ──▶ row ──▶ slaves, one by one
      │  ◀─── response, late, lost ─────────── told what is settled                │ failover
      └── commits, late ──▶                                        the next Master ◀┘ group_of(row)

Clients pause, die, leave, come back as static members, and trust their own clock: who has no
response within its session, counted from when it sent the request, stops. The checker knows what
clients believe, and nothing of how the group comes to its decisions:

    one reader    two clients whose sessions are valid never read the same queue
    fenced        a commit is taken only from the client that took the queue last, in the same life:
                  one that lost its membership and joined again has another
    untouched     a queue is taken back only if it is to go to somebody else
    no starving   once the faults end, all queues are read, in equal shares
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tandemlog.format.calls import LEAVE, LEAVE_FOR_A_WHILE
from tandemlog_server.node.groups.assignor import Queue, assign
from tandemlog_server.node.groups.consumer_group import (
    JOIN,
    ConsumerGroup,
    FencedInstanceError,
    FencedMemberError,
    LateRequestError,
    Report,
    Told,
)
from tandemlog_server.node.groups.group_rows import group_of, row_of

NODES = ("a", "b", "c")
SESSION_S = 6.0
GIVE_UP_S = 8.0
INTERVAL_S = 1.5
CALM_S = 40.0


class BrokenPromiseError(AssertionError):
    """What the checker found."""


@dataclass
class Client:
    """One member of the group, as it sees itself."""

    member_id: str
    instance_id: str
    topics: frozenset[str]
    epoch: int = JOIN
    number: int = 0
    owned: set[Queue] = field(default_factory=set)
    life: int = 0
    giving_up: set[Queue] = field(default_factory=set)
    asked: int = 0
    sent_at: float = 0.0
    valid_from: float = float("-inf")
    """When it sent the newest request that was answered."""
    paused_until: float = 0.0
    dead: bool = False
    stuck: bool = False
    superseded: bool = False

    def valid(self, now: float) -> bool:
        return not self.dead and now - self.valid_from < SESSION_S


@dataclass
class Master:
    """The shell around the real group: what coordinator.py does, step by step."""

    node: str
    group: ConsumerGroup
    saving: bool = False


class World:
    """One run; `play` raises BrokenPromiseError."""

    def __init__(self, seed: int, seconds: float = 120.0) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.seconds = seconds
        self.counts = {"orders": 7, "bills": 3}
        self.rows: dict[str, Any] = dict.fromkeys(NODES)
        self.clients: list[Client] = []
        self.last_taker: dict[Queue, tuple[str, int]] = {}
        self.seen: Counter[str] = Counter()
        self.log: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._names = 0
        self.master: Master | None = None
        self._lead("a")

    @property
    def calm(self) -> bool:
        return self.now >= self.seconds

    def play(self) -> None:
        for _ in range(3):
            self._start_client()
        self.after(0.2, self._tick)
        self.after(1.0, self._fault)
        while self._events and self.now < self.seconds + CALM_S:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._check_readers()
        self._check_shares()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + seconds, self._order, event))

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:8.3f} {text}")

    def broken(self, text: str) -> BrokenPromiseError:
        return BrokenPromiseError("\n".join([*self.log[-60:], f"{self.now:8.3f} {text}"]))

    # ---- the network

    def _send(self, event: Callable[[], None]) -> None:
        """Deliver once, late, never or twice."""
        chance = 1.0 if self.calm else self.rng.random()
        if chance < 0.06:
            self.seen["lost"] += 1
            return
        self.after(self._delay(), event)
        if chance < 0.12:
            self.seen["twice"] += 1
            self.after(self._delay() + self.rng.random() * 12, event)

    def _delay(self) -> float:
        late = not self.calm and self.rng.random() < 0.08
        return self.rng.random() * (9.0 if late else 0.05)

    # ---- the master

    def _lead(self, node: str) -> None:
        row = self.rows[node]
        group = ConsumerGroup("g") if row is None else group_of("g", row, self.now)
        self.master = Master(node, group)
        self.note(f"{node} leads: {row}")
        group.set_topics(self.counts)
        self._after(self.master)

    def _after(self, master: Master, reporter: str = "") -> None:
        group = master.group
        while group.out_of_date:
            group.set_target(assign(*group.assignment_work()))
        group.reconcile(self.now, group.members.get(reporter))
        if group.version != group.confirmed_version and not master.saving:
            master.saving = True
            self.after(0.01, lambda: self._save(master))

    def _save(self, master: Master) -> None:
        """The row is durable here, and comes to the slaves one by one; then it is settled."""
        if self.master is not master:
            return
        group, row = master.group, row_of(master.group)
        version, epoch = group.version, group.epoch
        state = {each.member_id: (each.epoch, dict(each.owned)) for each in group.members.values()}
        self.rows[master.node] = row
        waiting = [node for node in NODES if node != master.node]

        def take(node: str) -> None:
            if self.master is not master:
                return
            self.rows[node] = row
            waiting.remove(node)
            if not waiting:
                group.confirm(version, epoch, state)
                master.saving = False
                self._after(master)

        for node in list(waiting):
            self.after(self.rng.random() * (0.05 if self.calm else 0.6), partial(take, node))

    def _tick(self) -> None:
        self.after(0.2, self._tick)
        master = self.master
        if master is None:
            return
        gone = master.group.expire(self.now)
        for each in gone:
            self.note(f"removed {each.member.member_id}: {each.reason}")
            if "give up" in each.reason:
                self._client(each.member.member_id).superseded = True
        master.group.set_topics(self.counts)
        self._after(master)

    def _hear(self, client: Client, report: Report) -> None:
        master = self.master
        if master is None:
            return
        group = master.group
        try:
            if report.epoch == JOIN:
                gone = group.join(report, self.now)
                client.superseded = False
                if gone is not None and gone.member.member_id != report.member_id:
                    self.note(f"{report.member_id} takes over {gone.member.member_id}")
                    self._client(gone.member.member_id).superseded = True
                group.set_topics(self.counts)
            elif report.epoch < 0:
                group.leave(report, self.now)
                self._after(master)
                return
            else:
                group.hear(report, self.now)
        except LateRequestError:
            self.seen["late"] += 1
            return
        except (FencedMemberError, FencedInstanceError) as error:
            fencing = error
            self._after(master)
            self._send(lambda: self._fenced(client, report.number, fencing))
            return
        self._after(master, report.member_id)
        wait = INTERVAL_S
        self._respond(master, client, report, self.now + wait)

    def _respond(self, master: Master, client: Client, report: Report, until: float) -> None:
        """A long poll, looked at again and again."""
        group = master.group
        member = group.members.get(report.member_id)
        if self.master is not master or member is None or member.number != report.number:
            return
        told = group.what_to_tell(member)
        if not tellable(told):
            if self.now < until + INTERVAL_S:
                self.after(0.05, lambda: self._respond(master, client, report, until))
            return
        if told == member.last and self.now < until:
            self.after(0.05, lambda: self._respond(master, client, report, until))
            return
        told = group.tell(member)
        targets = {queue: group.target.get(queue) for queue in member.owned}
        self._send(lambda: self._take(client, report, told, targets))

    # ---- the clients

    def _client(self, member_id: str) -> Client:
        return next(each for each in self.clients if each.member_id == member_id)

    def _start_client(self, instance_id: str = "") -> Client:
        self._names += 1
        topics = frozenset({"orders", "bills"} if self._names % 3 else {"orders"})
        client = Client(f"m{self._names}", instance_id, topics)
        self.clients.append(client)
        self.note(f"{client.member_id} starts {instance_id}")
        self._report(client)
        return client

    def _report(self, client: Client) -> None:
        """Send a heartbeat; another one follows if no response comes."""
        if client.dead:
            return
        if client.paused_until > self.now:
            self.after(client.paused_until - self.now, lambda: self._report(client))
            return
        self._look_at_clock(client)
        client.number += 1
        client.asked, client.sent_at = client.number, self.now
        report = Report(
            client.member_id,
            client.epoch,
            client.number,
            client.topics,
            frozenset(client.owned),
            client.instance_id,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(GIVE_UP_S * 1000),
        )
        self._send(lambda: self._hear(client, report))
        number = client.number
        self.after(INTERVAL_S + 1.0, lambda: self._give_up_request(client, number))
        for queue in sorted(client.owned):
            if self.rng.random() < 0.3:
                self._commit(client, queue)

    def _give_up_request(self, client: Client, number: int) -> None:
        if client.asked == number:
            client.asked = 0
            self._report(client)

    def _look_at_clock(self, client: Client) -> None:
        if client.epoch != JOIN and not client.valid(self.now):
            self.note(f"{client.member_id} has lost its session")
            self._begin_again(client)

    def _begin_again(self, client: Client) -> None:
        client.owned, client.giving_up, client.epoch = set(), set(), JOIN
        client.superseded = client.stuck = False
        client.life += 1

    def _take(
        self, client: Client, report: Report, told: Told, targets: dict[Queue, str | None]
    ) -> None:
        if client.dead or client.asked != report.number:
            return
        if client.paused_until > self.now:
            wait = client.paused_until - self.now
            self.after(wait, lambda: self._take(client, report, told, targets))
            return
        client.asked = 0
        self._look_at_clock(client)
        client.valid_from = client.sent_at
        if report.epoch == JOIN or client.epoch != JOIN:
            self._accept(client, told, targets)
        self.after(0.01 if client.giving_up else 0.05, lambda: self._report(client))

    def _accept(self, client: Client, told: Told, targets: dict[Queue, str | None]) -> None:
        client.epoch = told.member_epoch
        for queue in sorted(told.queues - client.owned):
            client.owned.add(queue)
            if not client.superseded:
                self.last_taker[queue] = client.member_id, client.life
        for queue in sorted(client.owned - told.queues - client.giving_up):
            if targets.get(queue) == client.member_id:
                raise self.broken(f"{queue} of {client.member_id} was taken back for nothing")
            client.giving_up.add(queue)
            self.seen["given up"] += 1
            if not client.stuck:
                pause = self.rng.random() * 2
                self.after(pause, partial(self._done_with, client, queue, client.life))
        client.giving_up -= told.queues

    def _done_with(self, client: Client, queue: Queue, life: int) -> None:
        if client.paused_until > self.now:
            wait = client.paused_until - self.now
            self.after(wait, partial(self._done_with, client, queue, life))
        elif queue in client.giving_up and client.life == life:
            client.giving_up.discard(queue)
            client.owned.discard(queue)

    def _fenced(self, client: Client, number: int, error: Exception) -> None:
        if client.dead or client.asked != number:
            return
        self.note(f"{client.member_id} is fenced: {error}")
        self.seen["fenced"] += 1
        client.asked = 0
        self._begin_again(client)
        if isinstance(error, FencedInstanceError):
            client.dead = True
        else:
            self.after(0.1, lambda: self._report(client))

    def _commit(self, client: Client, queue: Queue) -> None:
        epoch, life = client.epoch, client.life

        def arrive() -> None:
            if self.master is None:
                return
            if self.master.group.not_owned(client.member_id, epoch, [queue]):
                self.seen["commits refused"] += 1
                return
            self.seen["commits"] += 1
            if self.last_taker[queue] != (client.member_id, life):
                raise self.broken(
                    f"a commit of {client.member_id} for {queue} was taken, life {life}, "
                    f"epoch {epoch}; the last to take it was {self.last_taker[queue]}"
                )

        self._send(arrive)

    # ---- faults

    def _fault(self) -> None:
        if self.calm:
            for client in self.clients:
                client.stuck = False
            return
        self.after(0.3 + self.rng.random() * 4, self._fault)
        alive = [each for each in self.clients if not each.dead]
        fault = self.rng.choice(
            ("join", "static", "leave", "kill", "pause", "pause", "failover", "failover",
             "stuck", "topic", "back", "subscribe")
        )  # fmt: skip
        if fault in ("join", "static") and len(alive) < 6:
            self._start_client(self.rng.choice(("", "one", "two")) if fault == "static" else "")
        elif fault == "failover":
            self._fail_over()
        elif fault == "topic":
            self.counts = {**self.counts, "orders": self.rng.randint(4, 9)}
        elif alive and len(alive) > 1:
            self._fault_of(fault, self.rng.choice(alive))
        self.seen[fault] += 1

    def _fault_of(self, fault: str, client: Client) -> None:
        self.note(f"{fault} {client.member_id}")
        if fault == "pause":
            client.paused_until = self.now + self.rng.choice((1.0, 5.0, 9.0, 20.0))
        elif fault == "stuck":
            client.stuck = True
        elif fault == "subscribe":
            client.topics ^= {"bills"}
        elif fault == "kill":
            client.dead = True
        elif fault in ("leave", "back"):
            static = bool(client.instance_id) and fault == "back"
            client.dead, client.number = True, client.number + 1
            epoch = LEAVE_FOR_A_WHILE if static else LEAVE
            report = Report(client.member_id, epoch, client.number)
            self._send(lambda: self._hear(client, report))
            if static:
                self.after(0.5, lambda: None if self.calm else self._again(client))

    def _again(self, client: Client) -> None:
        self._start_client(client.instance_id)

    def _fail_over(self) -> None:
        """The master is gone with what it had in memory; any other node of the set leads."""
        old = self.master
        if old is None:
            return
        self.master = None
        node = self.rng.choice([each for each in NODES if each != old.node])
        self.after(self.rng.random() * 3, lambda: self._lead(node))

    # ---- the checker

    def _readers(self) -> Iterator[tuple[Queue, str]]:
        for client in self.clients:
            if client.valid(self.now) and not client.superseded:
                for queue in client.owned:
                    yield queue, client.member_id

    def _check_readers(self) -> None:
        readers: dict[Queue, str] = {}
        for queue, name in self._readers():
            other = readers.setdefault(queue, name)
            if other != name:
                raise self.broken(f"{queue} is read by {other} and by {name}")

    def _check_shares(self) -> None:
        readers = dict(self._readers())
        alive = [each for each in self.clients if not each.dead]
        shares = Counter({each.member_id: 0 for each in alive})
        shares.update(readers.values())
        for topic in {topic for each in alive for topic in each.topics}:
            for queue_id in range(self.counts[topic]):
                if (topic, queue_id) not in readers:
                    raise self.broken(f"nobody reads {topic}/{queue_id}: {readers}")
        everything = [each for each in alive if "bills" in each.topics]
        loads = [shares[each.member_id] for each in everything]
        if loads and max(loads) - min(loads) > 1:
            raise self.broken(f"the shares differ: {shares}")
        self.seen["checked"] += 1


def tellable(told: Told) -> bool:
    """Whether something was settled in this term already."""
    return told.member_epoch > 0


def play(seed: int, seconds: float = 120.0) -> World:
    """A run, played to its end. Raises BrokenPromiseError with the last steps."""
    world = World(seed, seconds)
    world.play()
    return world
