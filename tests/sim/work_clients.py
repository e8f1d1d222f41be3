"""Consumers of work queues in the world of real stores: they receive, and say what became of it.

Handles of masters that died, or that stand still, are used like others. A message that was
acknowledged is done from the moment on in which a master has accepted that, and it is safe when a
`sync` behind it was answered.
"""

from itertools import pairwise
from random import Random

from sim.ha_nodes import ViolationError
from sim.services_nodes import ServicesNodes, is_of_a_client
from sim.services_process import ServicesProcess
from sim.store_ledger import place_of, records_of, split, told
from sim.work_promises import Delivery, Key, WorkPromises, order_of
from tandemlog.format.constants import DEAD_LETTER_PREFIX
from tandemlog.format.lease.dead_letter import decode_dead_letter
from tandemlog.format.lease.handle import HANDLE_CHARS
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy, Ordering, StartAt
from tandemlog.format.record.record import Record
from tandemlog_server.ha.store_port import GROUPS
from tandemlog_server.node.work.work_requests import LeasedMessages, ReceiveRequest
from tandemlog_server.storage.config import StoreConfig

POLICIES = {
    "any": GroupPolicy(3, Backoff((500, 3_000))),
    "latest": GroupPolicy(100, Backoff((200,)), start_at=StartAt.LATEST),
    "queue": GroupPolicy(4, Backoff((300,)), Ordering.QUEUE),
    "key": GroupPolicy(4, Backoff((300, 1_000)), Ordering.KEY),
}
GROUPS_OF_A_WORLD = 2
SHARDING_KEY = "__SHARDINGKEY"


class WorkClients(ServicesNodes):
    """See the module."""

    def __init__(
        self, seed: int, settings: StoreConfig | None = None, size: int | None = None
    ) -> None:
        super().__init__(seed, settings, size)
        chosen = Random(f"groups of {seed}").sample(sorted(POLICIES), GROUPS_OF_A_WORLD)
        self.promised = WorkPromises({name: POLICIES[name] for name in sorted(chosen)})
        self.loses = False
        self.events += [(16.0, self.receive), (24.0, self.say), (3.0, self.wake_the_sleeper)]

    def step(self) -> None:
        super().step()
        if self.loses:
            # in the moment in which somebody was told that it is safe
            self.loses = False
            node = self.master
            self.note(f"{node.name} is lost after an answer")
            self.stop(node)
            self.power_cut(node)
            if self.rng.random() < 0.5:
                # consumers ask again at once
                with self.on(node):
                    self.start(node)
                self.receive()

    def begin(self) -> None:
        super().begin()
        store, now_ms = self.master.store, self.master.clock.now_ms()
        for name, policy in self.promised.policies.items():
            store.groups.ensure(name, now_ms)
            store.groups.set_policy(name, policy, now_ms)
        for _ in range(200):
            if self.master.master.group.tables_held(GROUPS, store.groups.version):
                needed = self.master.master.group.needed_tables
                needed[GROUPS] = max(needed[GROUPS], store.groups.version)
                return
            self.calm()
        raise ViolationError("the groups do not come to the slaves")

    # --- they receive

    def receive(self) -> None:
        services = self.leading
        if services is not None:
            group = self.rng.choice(sorted(self.promised.policies))
            wait_ms = self.rng.choice((0, 0, 0, 1_000))
            self.call(services, self.received(services, group, self.rng.randint(1, 5), wait_ms))

    async def received(
        self, services: ServicesProcess, group: str, count: int, wait_ms: int = 0
    ) -> None:
        topics = tuple(each for each in self.topics if services.store.topics.get(each) is not None)
        if not topics:
            return
        lease_ms = self.rng.choice((1_000, 1_000, 3_000))
        request = ReceiveRequest(group, topics, count, lease_ms, wait_ms)
        result = await services.work.receive(request, services.caller)
        got = [
            each
            for messages in result.messages
            for each in self.deliveries(services, group, messages, lease_ms)
        ]
        if got:
            self.count("delivered")
        self.promised.delivered(got, self.now_ms, self.ledger.dropped)

    def deliveries(
        self, services: ServicesProcess, group: str, messages: LeasedMessages, lease_ms: int
    ) -> list[Delivery]:
        late = services is self.sleeper
        found = []
        records = split(bytes(messages.records), messages.sizes.tolist())
        for row, record in enumerate(records):
            end = record.physical_offset + record.size
            if end > services.store.confirmed.value:
                raise ViolationError(f"{told(record)} is delivered, and not confirmed")
            self.ledger.see(place_of(record), record.body)
            shard = record.properties.get(SHARDING_KEY, "")
            policy = self.promised.policies[group]
            found.append(
                Delivery(
                    group, place_of(record), record.body,
                    messages.handles[row * HANDLE_CHARS : (row + 1) * HANDLE_CHARS],
                    int(messages.attempts[row]), services.life, self.now_ms + lease_ms,
                    record.physical_offset, order_of(policy, group, place_of(record), shard), late,
                )
            )  # fmt: skip
        return found

    @property
    def now_ms(self) -> int:
        """Of the clock that never jumps."""
        return int(self.clock.monotonic() * 1000)

    def wake_the_sleeper(self) -> None:
        """It still gives out what its store holds, and hears what is done."""
        sleeper = self.sleeper
        if sleeper is None:
            return
        if self.rng.random() < 0.1:
            self.end_sleeper()
            return
        group = self.rng.choice(sorted(self.promised.policies))
        self.call(sleeper, self.received(sleeper, group, 3))
        self.count("late deliveries")

    # --- they say what became of it

    def say(self) -> None:
        services, held = self.leading, self.promised.held
        if services is None or not held:
            return
        group = self.rng.choice(held).group
        mine = [each for each in held if each.group == group]
        mine = mine[-20:] if self.rng.random() < 0.8 else mine
        chosen = self.rng.sample(mine, self.rng.randint(1, min(4, len(mine))))
        self.call(services, self.said(services, group, chosen))
        if self.rng.random() < 0.8:
            self.promised.held = [each for each in held if each not in chosen]

    async def said(self, services: ServicesProcess, group: str, chosen: list[Delivery]) -> None:
        what = self.rng.choice(("ack",) * 6 + ("retry", "retry", "release", "extend", "reject"))
        handles, work = b"".join(each.handle for each in chosen), services.work
        if what == "ack":
            await self.end_messages(services, group, chosen, sync=self.rng.random() < 0.5)
            return
        if what == "retry":
            delay_ms = self.rng.choice((None, 0, 700))
            results = await work.nack(group, handles, delay_ms=delay_ms, error="it failed")
        elif what == "release":
            results = await work.release(group, handles)
        elif what == "extend":
            results = await work.extend(group, handles, 2_000)
        else:
            results = await work.reject(group, handles, error="no use")
        for each, result in zip(chosen, results.tolist(), strict=True):
            if result != AckResult.OK:
                continue
            latest = self.promised.accepted(each, services.life, self.now_ms, done=False)
            if what == "extend":
                each.until_ms = latest.until_ms = self.now_ms + 2_000
                continue
            latest.open = each.open = False
            if what == "retry":
                self.promised.failed(each, services.life)
            if what == "release":
                self.promised.loose.add(each.key)
            if what == "reject":
                self.promised.rejected.add(each.key)

    async def end_messages(
        self, services: ServicesProcess, group: str, chosen: list[Delivery], *, sync: bool
    ) -> None:
        handles = b"".join(each.handle for each in chosen)
        results = await services.work.ack(group, handles)
        accepted = [
            each
            for each, result in zip(chosen, results.tolist(), strict=True)
            if result == AckResult.OK
        ]
        for each in accepted:
            self.promised.accepted(each, services.life, self.now_ms, done=True).open = False
        self.promised.acknowledged(accepted, services.life)
        self.count("acknowledged")
        if sync:
            ended, tried = self.promised.known(group, services.life)
            await services.work.sync(group)
            self.promised.confirmed(ended, tried)
            self.count("synced")
            self.loses = self.loses or self.rng.random() < 0.15

    # --- what must be there at the end

    def may_go(self, record: Record) -> None:
        super().may_go(record)
        if record.topic.startswith(DEAD_LETTER_PREFIX):
            self.promised.buried.add((record.topic.removeprefix(DEAD_LETTER_PREFIX), record.body))

    def work_left(self) -> list[Key]:
        """Messages in the master's log that a group has neither ended nor among its dead
        letters."""
        records = list(records_of(self.master.store))
        dead = {
            (each.topic.removeprefix(DEAD_LETTER_PREFIX), each.body)
            for each in records
            if each.topic.startswith(DEAD_LETTER_PREFIX)
        }
        return [
            (group, each.body)
            for each in records
            if is_of_a_client(each)
            for group in self.promised.policies
            if (group, each.body) not in dead
            and self.promised.left(group, place_of(each), each.body)
        ]

    def work_off(self) -> None:
        """One turn of consumers that do all their work."""
        services = self.leading
        if services is None:
            return
        for group in self.promised.policies:
            self.call(services, self.worked_off(services, group))

    async def worked_off(self, services: ServicesProcess, group: str) -> None:
        before = len(self.promised.held)
        await self.received(services, group, 12)
        got = self.promised.held[before:]
        if got:
            await self.end_messages(services, group, got, sync=True)

    def check_work(self) -> None:
        """What is in the log of each node of dead letters, and of progress."""
        for node in self.nodes.values():
            assert node.store is not None
            letters: dict[Key, list[int]] = {}
            for record in records_of(node.store):
                if not record.topic.startswith(DEAD_LETTER_PREFIX):
                    continue
                group = record.topic.removeprefix(DEAD_LETTER_PREFIX)
                letter = decode_dead_letter(record)
                key = (group, record.body)
                most = self.promised.policies[group].max_attempts
                if letter.attempts < most and key not in self.promised.rejected:
                    raise ViolationError(
                        f"{told(record.body)} is a dead letter after {letter.attempts} of {most}"
                    )
                letters.setdefault(key, []).append(record.physical_offset)
            terms = [each.start_offset for each in node.store.epochs.table.entries]
            for (group, body), places in letters.items():
                for first, second in pairwise(places):
                    if not any(first < each <= second for each in terms):
                        raise ViolationError(
                            f"{group}: {told(body)} is a dead letter twice in one term"
                        )
        said = {
            node.name: {
                (each.group, each.topic, each.queue_id): (
                    each.floor, tuple(each.ended_starts), tuple(each.ended_ends)
                )
                for each in node.store.leases.everything()[0]
            }
            for node in self.nodes.values()
        }  # fmt: skip
        first = said[self.master_name]
        for name, each in said.items():
            if each != first:
                raise ViolationError(f"{name} knows of other progress than the master")
