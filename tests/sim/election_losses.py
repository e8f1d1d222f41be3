"""What a cluster may lose, and only then: forced failovers, and elections in async replication.

    clean term     begins with all that was acknowledged or read
    unclean term   begins with a part of it: the rest is given up, here and by every other node

The operator who forces makes sure that the other nodes are stopped, as the command asks. A node
that was overruled may show what is given up until it has followed the new term. In async
replication an acknowledgement is the leader's alone, so none may come after its successor's term
has begun.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fakes.stream import FakeStream
from sim.election_disks import ElectionDisks
from sim.election_nodes import KEYS, ElectedNode
from sim.ha_nodes import Put, SimNode, ViolationError, holds, piece
from tandemlog_server.ha.coordinator.etcd_messages import txn_request
from tandemlog_server.ha.coordinator.values import Delete, KeyRange, Txn
from tandemlog_server.ha.coordinator.values import Put as PutKey
from tandemlog_server.ha.election.key_values import FORCED, RequestValue, encode
from tandemlog_server.ha.master.session import MasterAction, MasterSession, SendAnswer
from tandemlog_server.ha.protocol.frames import Hello

PATIENCE_S = 25.0


def is_filler(log: bytes, at: int) -> bool:
    """Whether the rest of a file stands there: bytes of no record (fake_store.py)."""
    return 0 <= at < len(log) and bool(log[at] & 0x80)


@dataclass
class Forcing:
    """A forced failover to `target`, asked for in `epoch`."""

    target: str
    epoch: int
    until: float


class ElectionLosses(ElectionDisks, ABC):
    """See the module."""

    least_record = 8
    """Bytes that the beginnings of two records may have in common by chance."""
    forcing: Forcing | None = None
    unclean_epoch = 0

    # --- an operator who accepts the loss

    def force(self, node: ElectedNode) -> None:
        record = self.coordination.record()
        if record is None or self.forcing is not None or self.coordination.world.delayed:
            return
        self.serial += 1
        self.forcing = Forcing(node.name, record.epoch, self.now + PATIENCE_S)
        self.note(f"an operator forces {node.name} to lead")
        for each in self.elected:
            if each is not node:
                self.stop(each)
        self.set_key(KEYS.request, RequestValue(FORCED, node.name, f"{self.serial}"))

    def follow_up(self) -> None:
        """The other nodes are started once it leads, or the operator has given up."""
        forcing = self.forcing
        if forcing is None:
            return
        led = self.node(forcing.target).leads
        if led > forcing.epoch or self.now > forcing.until:
            self.count("forced" if led > forcing.epoch else "forced in vain")
            self.stop_forcing()

    def stop_forcing(self) -> None:
        if self.forcing is not None:
            self.forcing = None
            self.delete_key(KEYS.request)

    def start(self, node: SimNode) -> None:
        if self.forcing is None or self.forcing.target == node.name:
            super().start(node)

    # --- keys that an operator changes

    def set_key(self, key: bytes, value: object) -> None:
        self.change_keys(Txn(then=(PutKey(key, encode(value)),)))

    def delete_key(self, key: bytes) -> None:
        self.change_keys(Txn(then=(Delete(KeyRange(key)),)))

    def change_keys(self, txn: Txn) -> None:
        self.coordination.world.machine.txn(txn_request(txn), self.now)
        self.coordination.pass_time()

    # --- checks

    @abstractmethod
    def leader(self) -> ElectedNode | None:
        """The one that the record names, if it leads."""

    def check_term(self, node: ElectedNode) -> None:
        record = self.coordination.record()
        assert record is not None
        if record.epoch > node.leads:
            self.leads_alone(node, node.leads)
            return  # it stood still before it began; what it acknowledges is looked at
        if record.unclean_epoch > self.unclean_epoch:
            self.unclean_epoch = record.unclean_epoch
            self.give_up(node)
        super().check_term(node)

    def give_up(self, leader: ElectedNode) -> None:
        """The new term begins with what this leader holds."""
        disk = leader.disk
        lost = [
            put for put in self.acked.values() if put.start >= disk.start and not holds(disk, put)
        ]
        for put in lost:
            del self.acked[put.start]
        self.counters["given up"] = self.counters.get("given up", 0) + len(lost)
        low, high = disk.start, len(self.read)
        held = piece(disk, low, high)
        while not held.startswith(bytes(self.read[low:high])):
            high -= 1
        del self.read[high:]
        self.note(f"{len(lost)} acknowledged puts are given up, read up to {high}")
        for node in self.elected:
            if node is not leader or node.read_to > high:
                node.read_to = min(node.read_to, high)
                node.overruled = node is not leader

    def is_overruled(self, node: ElectedNode) -> bool:
        """Whether it may still show what the cluster has given up."""
        if node.overruled and self.state(node).accepted_epoch >= self.unclean_epoch:
            leader, store = self.leader(), node.store
            if leader is not None and store is not None and self.agree(leader, node):
                node.overruled, node.read_to = False, 0
        return node.overruled

    def agree(self, leader: ElectedNode, node: ElectedNode) -> bool:
        """Whether what this node has confirmed is what the leader has there."""
        low = max(leader.disk.start, node.disk.start)
        high = node.disk.end if node.store is None else node.store.confirmed.value
        held = piece(leader.disk, low, high)
        return high <= leader.disk.end and piece(node.disk, low, high) == held

    def obey_master(
        self, node: SimNode, session: MasterSession, stream: FakeStream, actions: list[MasterAction]
    ) -> None:
        for action in actions:
            if isinstance(action, SendAnswer) and session.hello is not None:
                self.check_report(node, session.hello, action.answer.reason)
        super().obey_master(node, session, stream, actions)

    def check_report(self, leader: SimNode, hello: Hello, reason: str) -> None:
        """What a slave is told to give up is what it has confirmed and the leader does not have."""
        told = re.search(r"without (\d+) confirmed bytes", reason)
        if told is None:
            return
        slave = self.node(hello.node_id)
        if hello.incarnation != self.state(slave).incarnation:
            return  # it was told so before, and has set that log aside
        disk = slave.disk
        low, high = max(disk.start, leader.disk.start), min(disk.end, leader.disk.end)
        point = hello.confirm_offset - int(told[1])
        if point < low or low > high:
            return  # retention has dropped what could be compared
        mine, masters = piece(disk, low, high), piece(leader.disk, low, high)
        pairs = enumerate(zip(mine, masters, strict=True))
        equal = low + next((index for index, (a, b) in pairs if a != b), len(mine))
        by_chance = self.least_record
        if is_filler(mine, point - low):  # two logs may have the same one
            by_chance += disk.file_size - point % disk.file_size
        if not 0 <= equal - point < by_chance:
            raise ViolationError(f"{reason}: the logs are equal up to {equal}")
        self.count("losses reported")

    def check_deposed(self, node: ElectedNode, put: Put) -> None:
        """An acknowledgement that no other node had a part in needs the lease. One to which the
        leadership was handed over holds everything."""
        record = self.coordination.record()
        assert record is not None
        leader = self.node(record.leader.node_id)
        missing = put.start >= leader.disk.start and not holds(leader.disk, put)
        if record.epoch > node.leads and missing and not leader.other_disk:
            raise ViolationError(f"{node.name} acknowledges in {node.leads}, now is {record}")
