"""Disks that are not what they were: put back to an image of this run, wiped, cut by retention.

    running ─── image ─────────────── stop ─▶ the image is the disk now ─▶ start
                  └── promised bytes ──┘
                      that are missing

One disk at a time: another member of the set is whole, or it would be more than one failure. What
the leader has not told the coordinator yet, at most what it confirmed since its last renewal, is
the limit of the rule, so an image that lacks nothing but that is not put back. Neither is one that
lacks what the node has acknowledged to its master, who may confirm it a moment later.
"""

import copy
from abc import ABC

from fakes.fake_store import FakeDisk
from sim.election_agents import ElectionAgents
from sim.election_nodes import ElectedNode
from sim.ha_nodes import SimNode, ViolationError, holds, piece
from sim.ha_scenes import Nothing
from tandemlog_server.ha.state import Member, decode_state


class ElectionDisks(ElectionAgents, ABC):
    """See the module. `dropped`: retention has deleted nothing above it."""

    dropped = 0

    def back_up(self, node: ElectedNode) -> None:
        """What a machine that stops now would leave behind, a moment after the start or later."""
        process = node.process
        if process is None or node.store is None or not process.agent.registration.done:
            return
        node.backup = copy.deepcopy(node.disk)
        node.backup.power_cut(self.rng)

    def put_back(self, node: ElectedNode) -> None:
        image = node.backup
        if image is None or not self.spare(node) or self.is_too_new(node, image):
            return
        self.note(f"{node.name} is put back: {node.disk.end} -> {image.end}")
        self.count("put back" if self.keeps(image) else "put back, lacking")
        self.stop(node)
        node.disk, node.other_disk = copy.deepcopy(image), True

    def wipe(self, node: ElectedNode) -> None:
        if not self.spare(node):
            return
        self.note(f"the disk of {node.name} is wiped")
        self.count("wiped")
        self.stop(node)
        self.lose_disk(node)
        node.other_disk, node.backup = True, None

    def expire(self, node: ElectedNode) -> None:
        """Retention deletes whole files of what is confirmed."""
        store = node.store
        if store is None:
            return
        keep_from = store.confirmed.value - self.rng.randint(0, 1500)
        before = node.disk.start
        store.drop_before(keep_from)
        node.disk.confirmed = store.confirmed.value  # a checkpoint comes first
        if node.disk.start > before:
            self.dropped = max(self.dropped, node.disk.start)
            self.count("expired")
            self.note(f"{node.name} begins at {node.disk.start}")
        self.positions(node)

    def power_cut(self, node: SimNode, kept: object = None) -> None:
        """Without a doubt that leaves no node to elect: of the disks in the set, one fails."""
        assert isinstance(node, ElectedNode)
        if node.disk.counts_unflushed and not self.spare(node):
            return
        node.has_power = False
        super().power_cut(node)

    def cut_rack(self) -> None:
        """The power of all machines, whoever led before: of a disk that counts nothing which is not
        fsynced, nothing that was acknowledged can be missing, and it leads next."""
        self.note("the rack loses power")
        self.count("rack loses power")
        for node in self.elected:
            self.stop(node)
            node.has_power = False
            super().power_cut(node)

    def lose_unsynced(self, node: ElectedNode) -> None:
        """A power cut that leaves what was fsynced and nothing else, whoever could lead then."""
        super().power_cut(node, Nothing())

    def outlives_rack(self) -> bool:
        """Whether some disk of the recorded set has everything that was acknowledged, and shows
        it."""
        record = self.coordination.record()
        if record is None or self.coordination.world.delayed:
            return False
        busy = any(each.master and each.master.persisting for each in self.elected)
        return not busy and any(
            self.is_whole(each.node_id, each.incarnation)
            and not self.node(each.node_id).disk.counts_unflushed
            for each in record.in_sync
        )

    def spare(self, node: ElectedNode) -> bool:
        """Whether this disk may fail: another member of the set has everything."""
        record = self.coordination.record()
        if record is None or self.coordination.world.delayed:
            return False
        busy = any(each.master and each.master.persisting for each in self.elected)
        whole = all(self.is_whole(each.node_id, each.incarnation) for each in record.in_sync)
        return whole and not busy and len(record.in_sync) >= self.min_in_sync

    def is_whole(self, name: str, incarnation: str) -> bool:
        node = self.node(name)
        return (
            self.state(node).incarnation == incarnation
            and not node.disk.doubt
            and not node.other_disk
        )

    # --- what an image lacks, and whether that shows

    def keeps(self, image: FakeDisk) -> bool:
        """Whether all that was acknowledged or read is on it."""
        read = piece(image, image.start, len(self.read)) == self.read[image.start :]
        acked = self.acked.values()
        return read and all(put.start < image.start or holds(image, put) for put in acked)

    def is_too_new(self, node: ElectedNode, image: FakeDisk) -> bool:
        if image.doubt or (self.keeps(image) and image.end >= self.counted_on(node)):
            return False
        entry = self.coordination.snapshot().roster.get(node.name)
        counted = 0 if entry is None else entry.starts
        return decode_state(image.state).starts >= counted and not self.shows(image)

    def counted_on(self, node: ElectedNode) -> int:
        """Up to where a master may count on this disk, by what it has heard or is to hear yet."""
        heard = [
            each.master.group.tracker.durable(Member(node.name, self.state(node).incarnation)) or 0
            for each in self.elected
            if each.master is not None and each is not node
        ]
        return max(0, *heard, node.disk.durable if node.slave is not None else 0)

    def shows(self, disk: FakeDisk) -> bool:
        snapshot = self.coordination.snapshot()
        told, record = snapshot.confirmed, snapshot.record
        if told is None or record is None or told.term < record.unclean_epoch:
            return False
        entry = disk.epochs.entry_at(told.offset - 1)
        other = entry is not None and told.epoch not in (0, entry.epoch)
        return disk.end < told.offset or other

    # --- checks

    def check_begin(self, node: ElectedNode) -> None:
        if node.disk.start > self.dropped:
            raise ViolationError(f"{node.name} begins at {node.disk.start}: {self.dropped} expired")
