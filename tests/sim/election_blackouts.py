"""The power of all nodes fails at once, after any history of roles; and an election has to follow.

    history: elections, switches, kills ─▶ rest, or not ─▶ dark ─▶ all start ─▶ a leader, by itself

Each disk keeps what was fsynced, and any beginning of the rest. A member of the recorded set whose
disk was whole for a while lacks nothing, and can know it: so nobody has to force anything. Where no
such disk is left, what was counted without an fsync may be gone, and an operator decides.
"""

from sim.election_nodes import KEYS, ElectedNode
from sim.election_world import ELECTED_WITHIN_S, ElectionWorld
from sim.ha_nodes import NODES, ViolationError
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.election.key_values import SWITCHOVER, RequestValue, SettingsValue
from tandemlog_server.ha.master.term import IDLE_S
from tandemlog_server.storage.config import FlushMode

KNOWN_AFTER_S = 2.0
"""That a disk is whole is noted durably by then; that of a master, once it has rested."""
OPERATOR_S = 30.0


class BlackoutWorld(ElectionWorld):
    """See the module."""

    calm_s = 0.05

    def __init__(self, seed: int, flush: FlushMode, mode: Replication) -> None:
        super().__init__(seed, flush, mode)
        self.expires = 0.0
        self.may_force = False
        self.trouble = self.rng.choice((0.0, 0.05, 0.1))
        self.whole_since: dict[str, float] = {}
        self.log_ends: dict[str, tuple[int, float]] = {}

    def check(self) -> None:
        super().check()
        for node in self.elected:
            if self.log_ends.get(node.name, (-1, 0.0))[0] != node.disk.end:
                self.log_ends[node.name] = node.disk.end, self.now
            if node.disk.durable < node.disk.end or node.disk.doubt:
                self.whole_since.pop(node.name, None)
            else:
                self.whole_since.setdefault(node.name, self.now)

    def was_whole(self, node: ElectedNode) -> bool:
        whole_s = self.now - self.whole_since.get(node.name, self.now)
        rested_s = self.now - self.log_ends.get(node.name, (0, self.now))[1]
        rests = node.master is None or rested_s >= IDLE_S + KNOWN_AFTER_S
        return whole_s >= KNOWN_AFTER_S and rests

    # --- before

    def history_of_roles(self) -> None:
        """Whoever leads, and led, by chance and by switches."""
        if self.rng.random() < 0.7:
            for _ in range(self.rng.randint(1, 4)):
                self.switch()
        for _ in range(self.rng.choice((0, 100, 300))):
            self.step()
        if self.rng.random() < 0.3:
            self.leave_alone()
        if self.rng.random() < 0.6:
            self.calm_for(self.rng.uniform(0.5, 12.0))

    def switch(self) -> None:
        """To any other node, as an operator asks."""
        self.serial += 1
        target = self.rng.choice(NODES)
        self.set_key(KEYS.request, RequestValue(SWITCHOVER, target, f"{self.serial}"))
        for _ in range(self.rng.randint(10, 60)):
            if self.rng.random() < 0.2:
                self.put()
            self.calm()

    def leave_alone(self) -> None:
        """The others are down for so long that they leave the set, if the mode lets them."""
        leader = self.leader()
        if leader is None:
            return
        until = self.now + self.rng.uniform(3.0, 15.0)
        while self.now < until:
            for node in self.elected:
                if node is not leader and node.store is not None:
                    self.stop(node)
            if self.rng.random() < 0.1:
                self.put()
            self.calm()

    def calm_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.calm()

    # --- dark

    def black_out(self) -> None:
        record = self.coordination.record()
        if record is None:
            return
        whole = [
            node
            for node in self.elected
            if any(
                each.node_id == node.name and each.incarnation == self.state(node).incarnation
                for each in record.in_sync
            )
            and self.was_whole(node)
        ]
        self.note(f"the power fails; whole are {[each.name for each in whole]} of {record.in_sync}")
        self.count("blackouts")
        for node in self.elected:
            self.stop(node)
            node.has_power = False
            node.disk.power_cut(self.rng)
        self.coordination.cut.clear()
        self.cuts.clear()
        self.set_key(KEYS.settings, SettingsValue())
        self.delete_key(KEYS.request)
        trouble, self.coordination.trouble = self.coordination.trouble, 0.0
        elected = self.elects_within(ELECTED_WITHIN_S)
        if not elected:
            if whole:
                raise ViolationError(
                    f"nothing is missing on {[each.name for each in whole]}, and nobody is elected"
                )
            self.count("operators needed")
            self.force_the_best()
        self.coordination.trouble = trouble

    def elects_within(self, seconds: float) -> bool:
        until = self.now + seconds
        while self.now < until:
            self.calm()
            if self.leader() is not None:
                return True
        return False

    def force_the_best(self) -> None:
        """The operator takes the one with the newest epoch, and then the longest log."""

        def rank(node: ElectedNode) -> tuple[int, int]:
            last = node.disk.epochs.last
            return (0 if last is None else last.epoch, node.disk.end)

        self.coordination.world.deliver()
        self.force(max(self.elected, key=rank))
        until = self.now + OPERATOR_S
        while self.forcing is not None and self.now < until:
            self.calm()
            self.follow_up()
        if self.leader() is None:
            raise ViolationError("an operator has forced a node to lead, and it does not")


def blackouts(seed: int, flush: FlushMode, mode: Replication, rounds: int = 2) -> BlackoutWorld:
    """One world. Raises ViolationError with its history."""
    world = BlackoutWorld(seed, flush, mode)
    try:
        for node in world.elected:
            world.start(node)
        world.found()
        for _ in range(rounds):
            world.history_of_roles()
            world.black_out()
        world.finish()
    except ViolationError as broken:
        raise ViolationError(f"{broken}\n{world.describe()}") from broken
    return world


def blackouts_of(seed: int) -> BlackoutWorld:
    """Modes and flush in turn."""
    mode = list(Replication)[seed % 3]
    return blackouts(seed, FlushMode.SYNC if seed // 3 % 2 else FlushMode.ASYNC, mode)
