"""What ElectionAgent does, step by step and without a loop: look, decide, act; keep the lease.

The decisions are RoleLoop's, the changes of the record those of `transactions`. Here is only the
order of calls of ha/election/agent.py, in which each call may fail or come late.
"""

from contextlib import suppress
from dataclasses import replace

from ha.coordinator.errors import (
    CoordinatorError,
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from ha.coordinator.values import Put, Txn
from ha.election.role_loop import Follow, KeepLeading, Lead, Own, Send, Step, StepDown, Wait
from ha.election.switchover import CannotSwitchError, Switching, switch_target
from ha.election.transactions import ask, hand_over, renew
from ha.election.values import MemberValue, encode
from sim.election_cluster import ElectionCluster
from sim.election_nodes import ELECTION, KEYS, ElectedNode, drive
from sim.ha_nodes import ViolationError


class ElectionAgents(ElectionCluster):
    """See the module."""

    # --- the keys

    def read_keys(self, node: ElectedNode) -> None:
        """As they are now. Raises CoordinatorUnavailableError."""
        process = node.process
        assert process is not None
        self.coordination.arm(node.name, process.client)
        process.builder.take(drive(process.client.range(KEYS.all)))
        process.woke = None

    def hear_keys(self, node: ElectedNode) -> None:
        """The watch tells something, perhaps long after it was changed."""
        process, listings = node.process, self.coordination.listings
        if process is not None and listings and self.coordination.reachable(node.name):
            process.builder.take(self.rng.choice(listings))

    def look_soon(self, node: ElectedNode) -> None:
        with suppress(CoordinatorUnavailableError):
            self.read_keys(node)

    # --- the lease

    def member(self, node: ElectedNode) -> MemberValue:
        process, store = node.process, node.store
        assert process is not None
        assert store is not None
        state, last = self.state(node), store.epochs.table.last
        obstacle = "its last attempt failed" if self.now < process.failed_until else ""
        return MemberValue(
            node_id=node.name,
            incarnation=state.incarnation,
            session=process.session,
            endpoint=f"{node.name}:1",
            accepted_epoch=state.accepted_epoch,
            last_epoch=0 if last is None else last.epoch,
            end_offset=store.log.wrote.value,
            obstacle=obstacle,
        )

    def renew(self, node: ElectedNode) -> None:
        process = node.process
        if process is None or self.now < process.renew_at:
            return
        process.renew_at = self.now + ELECTION.renew_s
        try:
            self.renew_once(node)
        except LeaseLostError:
            process.lease.lost()
            process.renew_at = self.now
        except (CoordinatorUnavailableError, UnknownOutcomeError):
            self.count("renewals failed")

    def renew_once(self, node: ElectedNode) -> None:
        process = node.process
        assert process is not None
        client, held = process.client, process.lease
        self.coordination.arm(node.name, client)
        if held.lease is None:
            held.renewed(drive(client.grant_lease(ELECTION.lease_ttl_s)))
        else:
            held.renewed(drive(client.keep_alive(held.lease.lease_id)))
        me, snapshot, sent_at = self.member(node), process.snapshot, self.now
        leader = snapshot.leader
        mine = process.session, process.leading
        if leader is not None and (leader.session, leader.epoch) == mine:
            txn = renew(KEYS, snapshot.leader_revision, me, held.lease_id)
            if drive(client.txn(txn)).succeeded:
                held.proved(sent_at)
                self.check_proof(node)
            else:
                self.read_keys(node)
        elif snapshot.members.get(me.node_id) != replace(me, lease=held.lease_id):
            put = Put(KEYS.member(me.node_id), encode(me), held.lease_id)
            drive(client.txn(Txn(then=(put,))))

    def check_proof(self, node: ElectedNode) -> None:
        """The coordinator has executed what only the leader can change."""
        record = self.coordination.record()
        if record is None or (record.leader.node_id, record.epoch) != (node.name, node.leads):
            raise ViolationError(f"{node.name} renewed epoch {node.leads}, the record is {record}")

    # --- decisions

    def look(self, node: ElectedNode) -> None:
        """One turn of the agent's loop, with what it knows now or has just read."""
        process = node.process
        if process is None or node.store is None:
            return
        if self.rng.random() < 0.5:
            self.look_soon(node)
        else:
            self.hear_keys(node)
        self.decide(node)

    def decide(self, node: ElectedNode) -> None:
        """By what it knows."""
        process = node.process
        assert process is not None
        self.serial += 1
        own = Own(
            self.member(node),
            process.leading,
            process.begun,
            process.lease.lease_id,
            self.state(node).cluster_uuid,
        )
        step = process.loop.decide(
            process.snapshot, own, self.now, self.clock.now_ms(), f"uuid{self.serial}"
        )
        self.execute(node, step)

    def execute(self, node: ElectedNode, step: Step) -> None:
        process = node.process
        assert process is not None
        if isinstance(step, Lead):
            self.lead(node, step.record, step.revision)
        elif isinstance(step, Follow):
            self.follow(node, step.leader)
        elif isinstance(step, StepDown):
            self.note(f"{node.name} steps down: {step.reason}")
            self.count("stepped down")
            self.wait(node)
        elif isinstance(step, Send):
            self.send(node, step)
        elif isinstance(step, KeepLeading):
            self.keep_leading(node, step)
        elif isinstance(step, Wait) and (step.leave or not process.has_role):
            self.wait(node)

    def send(self, node: ElectedNode, step: Send) -> None:
        process = node.process
        assert process is not None
        self.coordination.arm(node.name, process.client)
        try:
            drive(process.client.txn(step.txn))
        except LeaseLostError:
            process.lease.lost()
        except (CoordinatorUnavailableError, UnknownOutcomeError):
            self.count("elections failed")
        self.look_soon(node)

    # --- a planned switch

    def keep_leading(self, node: ElectedNode, step: KeepLeading) -> None:
        process = node.process
        assert process is not None
        if step.request is None:
            self.end_switch(node)
            return
        try:
            self.switch(node, step)
        except CannotSwitchError as error:
            self.end_switch(node)
            self.count("switches refused")
            answer = replace(step.request, outcome=str(error))
            self.coordination.arm(node.name, process.client)
            with suppress(CoordinatorError):
                drive(process.client.txn(ask(KEYS, process.snapshot, answer)))
                self.read_keys(node)

    def switch(self, node: ElectedNode, step: KeepLeading) -> None:
        process, store, master = node.process, node.store, node.master
        assert process is not None
        assert store is not None
        if step.request is None or master is None:
            return
        target = switch_target(process.snapshot, step.request)
        switching = process.switching
        if switching is None or switching.target.node_id != target.node_id:
            process.switching = Switching(step.request, target, self.now)
            process.held_back = True
            return
        if switching.too_long(self.now):
            raise CannotSwitchError(f"{target.node_id} did not have the whole log in time")
        match = master.group.tracker.matches.get(target.node_id)
        connected = match is not None and target.node_id in master.group.sessions
        durable = match.durable if match is not None and connected else None
        if not switching.ready(durable, store.log.wrote.value, 0):
            return
        txn = hand_over(KEYS, process.snapshot, target, "planned", self.clock.now_ms())
        self.coordination.arm(node.name, process.client)
        try:
            if drive(process.client.txn(txn)).succeeded:
                self.count("switched")
        except (CoordinatorUnavailableError, UnknownOutcomeError, LeaseLostError):
            self.count("switches unanswered")
        self.look_soon(node)

    def end_switch(self, node: ElectedNode) -> None:
        assert node.process is not None
        node.process.switching, node.process.held_back = None, False
