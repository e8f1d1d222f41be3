"""The master's whole view of its slaves, without I/O: sessions, in-sync set, confirm offset.

    frames of each slave ──▶ session ──▶ confirm tracker ──▶ view.confirm ──▶ every session
    own positions ────────────────────────────┘   ▲
    time ──▶ in-sync set ── record to persist ────┘ (recorded and proposed sets both count)

The caller executes the actions that the methods return and reports the outcome: `persisted` when a
record is durable, `closed` when a stream ended. If `seen_epoch` is above the own epoch, the caller
records it: the next term must be higher. A master's term is one object of this class: its epoch
never changes, so a new term is a new object and nothing of an old one can leak into it.

A process may stand still (SIGSTOP, a machine that sleeps) while others elect. Every call tells
`now`, so a group that was elected notices: if nothing was called for `dead_after_ms`, it ends all
sessions. What slaves acknowledged before the pause then counts for nothing, and each has to greet
again in this epoch, which a slave that follows a newer master does not do.

Whose word counts: no node, known or not, has to cut its log below what it knows to be confirmed,
but only one that is in the in-sync set, or was, can stop puts with an alarm or advance the epoch.
The hello of any other node is refused and changes nothing. A master that knows no other node (its
disk may be new) accepts alarms from all nodes, but still takes no epoch from them. Slaves that were
never in the set are listed while they are connected and a while longer, at most MAX_OTHERS of them.
"""

from dataclasses import dataclass

from ..config import HaConfig
from ..protocol.frames import PREPARING, Ack, Hello, SlaveFrame
from ..protocol.handshake import MasterView, is_overruled
from ..state import InSyncRecord, Member
from .confirm_offset import ConfirmTracker
from .foreign_slaves import count_as_heard
from .rounds import led
from .session import MasterAction, MasterSession, SendAnswer, SessionState
from .sync_state_set import Progress, SetRules, SyncStateSet


@dataclass(frozen=True, slots=True)
class Return:
    """The leader of the term before `epoch` follows this master, on the disk that it had then: its
    log had `cut_bytes` that this master lacks."""

    epoch: int
    node_id: str
    cut_bytes: int


MAX_OTHERS = 64
MAX_ALARMS = 16
STRANGER = (
    " (it was never in an in-sync set that this master knows, so puts continue; if this "
    "master is the right one, move the slave's store away and let the slave start "
    "empty)"
)


class MasterGroup:
    """See the module. Owned by one thread (the event loop); `now` is monotonic seconds."""

    def __init__(
        self,
        config: HaConfig,
        me: Member,
        view: MasterView,
        record: InSyncRecord,
        own: int,
        now: float,
    ) -> None:
        self.config = config
        self.me = me
        self.view = view
        self.epoch_start = view.end_offset
        self.tracker = ConfirmTracker(me, view.epoch, view.confirm, own, config.required)
        rules = SetRules(
            required=config.required,
            lag_s=config.replica_lag_time_ms / 1000,
            rejoin_s=config.rejoin_ms / 1000,
            dead_s=config.dead_after_ms / 1000,
        )
        self.set = SyncStateSet(record, rules, me, now)
        self.progress: dict[str, Progress] = {}
        self.sessions: dict[str, MasterSession] = {}
        self.hellos: dict[str, Hello] = {}
        self.alarms: dict[str, str] = {}
        # what the slaves that the alarms name have said of themselves
        self.alarmed: dict[str, Hello] = {}
        self.seen_epoch = view.epoch
        self.returns: list[Return] = []
        self._called_at = now
        # versions that a node must have taken before it may join
        self.needed_tables: dict[str, int] = {}

    def open(self, now: float) -> MasterSession:
        """A stream has come; its session waits for the hello."""
        return MasterSession(self.view, self.config, now)

    def attach_foreign(self, hello: Hello, start: int, now: float) -> MasterSession | None:
        """A slave of another protocol gets the log from `start` on, and counts from now on; None if
        there is no room. It takes the place of an older connection of the same id."""
        if not self._has_room(hello):
            return None
        older = self.sessions.get(hello.node_id)
        if older is not None:
            older.close("the slave opened another connection")
        self.alarms.pop(hello.node_id, None)
        self.alarmed.pop(hello.node_id, None)
        session = MasterSession(self.view, self.config, now)
        session.attach(hello, start)
        self._attach(session, hello, now)
        self.progress[hello.node_id].foreign = True
        return session

    def alarm_foreign(self, hello: Hello, reason: str) -> None:
        """A slave of another protocol holds log that this master lacks: if it was in the in-sync
        set, acknowledged messages may be among it, and puts stop."""
        if self.known(hello.node_id) or not self.set.record.known - {self.me.node_id}:
            self.alarms[hello.node_id] = reason
            self.alarmed[hello.node_id] = hello

    def receive(self, session: MasterSession, frame: SlaveFrame, now: float) -> list[MasterAction]:
        """Take a frame in; returns what to send to that slave."""
        self.notice_pause(now)
        if isinstance(frame, Hello) and session.state is SessionState.WAITING:
            return self._join(session, frame, now)
        actions = session.receive(frame, now)
        if isinstance(frame, Ack) and session.streaming:
            return actions + self._acknowledge(session, frame, now)
        return actions

    def closed(self, session: MasterSession, reason: str) -> None:
        """The stream of `session` has ended."""
        session.close(reason)
        hello = session.hello
        if hello is not None and self.sessions.get(hello.node_id) is session:
            del self.sessions[hello.node_id]
            self.progress[hello.node_id].connected = False

    def may_confirm(self) -> bool:
        """Whether something could be acknowledged now if every member follows: no alarm says that
        this master lacks messages, its set is settled and large enough."""
        if not self.config.mode.waits:
            return True
        return self._is_complete() and not self.alarms

    def _is_complete(self) -> bool:
        """Whether the set is settled, and every set in force is large enough to acknowledge by."""
        smallest = min(len(each) for each in self.set.in_force())
        return self.set.record.settled and smallest >= self.config.required

    def acts_alone(self) -> bool:
        """Whether an acknowledgement needs no other node."""
        if not self.config.mode.waits:
            return True
        return all(members == {self.me} for members in self.set.in_force())

    def ask_round(self, now: float) -> int:
        """Ask every member of the sets in force whether it still follows this term (rounds.py); the
        number of the round, 0 if one of them cannot answer now."""
        self.notice_pause(now)
        if not all(len(members) > 1 for members in self.set.in_force()):
            return 0
        if not all(self._can_answer(member) for member in self._others_in_force()):
            return 0
        self.view.round += 1
        return self.view.round

    def led_in_round(self, number: int) -> bool:
        """Whether this master led when that round was answered: every member has."""
        return led(self.set.in_force(), self.me, number, self.tracker.round_of)

    def heard_by_all(self, now: float) -> bool:
        """Whether every other member of every set in force follows this term, as far as its
        heartbeats tell: without a lease, that is what lets this master acknowledge."""
        return all(self._live(member, now) for member in self._others_in_force())

    def _others_in_force(self) -> frozenset[Member]:
        return frozenset().union(*self.set.in_force()) - {self.me}

    def _can_answer(self, member: Member) -> bool:
        session = self.sessions.get(member.node_id)
        each = self.progress.get(member.node_id)
        return (
            session is not None
            and session.answers_rounds
            and each is not None
            and each.member == member
        )

    def stood_still(self, now: float) -> bool:
        """Whether no call has come for so long that another node may lead."""
        silent_ms = (now - self._called_at) * 1000
        return self.view.elected and silent_ms > self.config.dead_after_ms

    def notice_pause(self, now: float) -> bool:
        """Whether this process stood still until now; see the module."""
        paused = self.stood_still(now)
        self._called_at = max(self._called_at, now)
        if paused:
            for session in [*self.sessions.values()]:
                session.close(
                    f"this master stood still for more than {self.config.dead_after_ms} ms"
                )
            for node_id in self.tracker.matches:  # also of streams that have ended
                self.tracker.forget(node_id)
        return paused

    def positions(self, *, own: int, end: int, minimum: int, now: float) -> int:
        """The master's own log has moved; returns the confirm offset."""
        self.notice_pause(now)
        self.tracker.own = own
        self.view.end_offset = end
        self.view.min_offset = minimum
        return self._confirm()

    def tick(self, now: float) -> InSyncRecord | None:
        """A change of the in-sync set that is due: persist it, then call `persisted`.

        It is in force from now on, beside the recorded set.
        """
        self.notice_pause(now)
        self._forget_others(now)
        for node_id, session in self.sessions.items():
            count_as_heard(session, self.progress[node_id], self.view.end_offset, now)
        need = max(self.tracker.value, self.epoch_start)
        return self.set.propose(
            self.progress, self._durable(), need, now, self.alarms, self.needed_tables
        )

    def persisted(self, record: InSyncRecord) -> int:
        """`record` is durable; returns the confirm offset under it."""
        self.set.resolved(record)
        self.view.unheard = self.set.record.unheard
        self.view.known_nodes = self.set.record.known
        return self._confirm()

    def admission(self, now: float) -> str | None:
        """Why a put that waits for slaves cannot be accepted now; None if it can."""
        if not self.config.mode.waits:
            return None
        if self.alarms:
            return "; ".join(self.alarms.values())
        live = [member for member in self.set.members if self._live(member, now)]
        if len(live) < self.config.required:
            names = ", ".join(sorted(member.node_id for member in live))
            return (
                f"{len(live)} in-sync replicas ({names}), but min_in_sync is "
                f"{self.config.min_in_sync}"
            )
        return None

    def _join(self, session: MasterSession, hello: Hello, now: float) -> list[MasterAction]:
        older = self.sessions.get(hello.node_id)
        if older is not None and self._another_node(older, hello, now):
            return session.refuse(
                f"node id {hello.node_id!r} is in use by the slave at "
                f"{self.hellos[hello.node_id].endpoint}: give every node its own node_id",
                retry=True,
            )
        if not self._has_room(hello):
            return session.refuse(
                f"{MAX_OTHERS} slaves that are not in sync are connected already", retry=True
            )
        actions = session.receive(hello, now)
        if session.seen_epoch and self.known(hello.node_id):
            self.seen_epoch = max(self.seen_epoch, session.seen_epoch)
        if session.alarm:
            return self._alarm(session, hello)
        if any(isinstance(action, SendAnswer) for action in actions):
            self._note_return(session, hello)
        if not session.streaming:
            return actions
        if older is not None:
            older.close("the slave opened another stream")
        self.alarms.pop(hello.node_id, None)
        self.alarmed.pop(hello.node_id, None)
        self._attach(session, hello, now)
        return actions

    def _note_return(self, session: MasterSession, hello: Hello) -> None:
        """If it led a term and has followed no later one, what it cuts off is all that the term
        after it may have begun without."""
        led = (hello.master_id, hello.master_incarnation) == (hello.node_id, hello.incarnation)
        counts = self.known(hello.node_id) and len(self.returns) < MAX_ALARMS
        if led and counts and is_overruled(hello.accepted_epoch, self.view.unclean_epoch):
            epoch = hello.accepted_epoch + 1
            self.returns.append(Return(epoch, hello.node_id, session.cut_bytes))

    def known(self, node_id: str) -> bool:
        """Whether this node is in the in-sync set or was."""
        record = self.set.record
        return node_id in record.known or any(each.node_id == node_id for each in record.members)

    def tables_held(self, kind: str, version: int) -> bool:
        """Whether every in-sync member has taken that version of a table: any of them that becomes
        the master has it."""
        if not self.config.mode.waits:
            return True
        return self._is_complete() and all(
            self._has_table(member, kind, version) for member in self._others_in_force()
        )

    def tables_followed(self, kind: str, version: int) -> bool:
        """Whether every slave of the set that is connected has taken that version."""
        others = {member.node_id: member for member in self._others_in_force()}
        return all(
            self._has_table(member, kind, version)
            for node_id, member in others.items()
            if node_id in self.sessions and not self.progress[node_id].fault
        )

    def _has_table(self, member: Member, kind: str, version: int) -> bool:
        each = self.progress.get(member.node_id)
        return each is not None and each.member == member and each.has_table(kind, version)

    def _alarm(self, session: MasterSession, hello: Hello) -> list[MasterAction]:
        """The slave proves, as far as its word goes, that this master lacks something."""
        if self.known(hello.node_id):
            self.seen_epoch = max(self.seen_epoch, hello.accepted_epoch)
        elif self.set.record.known - {self.me.node_id} or len(self.alarms) >= MAX_ALARMS:
            reason, session.alarm = session.alarm + STRANGER, ""
            return session.refuse(reason, retry=False)
        self.alarms[hello.node_id] = session.alarm
        self.alarmed[hello.node_id] = hello
        return session.refuse(session.alarm, retry=False)

    def _has_room(self, hello: Hello) -> bool:
        """Whether one more node can be listed; a node that is away is dropped to make room."""
        if hello.node_id in self.hellos or self.known(hello.node_id):
            return True
        others = [node_id for node_id in self.hellos if not self.known(node_id)]
        if len(others) < MAX_OTHERS:
            return True
        away = [node_id for node_id in others if node_id not in self.sessions]
        if away:
            self._forget(min(away, key=lambda node_id: self.progress[node_id].heard_at))
        return bool(away)

    def _forget_others(self, now: float) -> None:
        """Slaves that are away for long and not in the set leave the list."""
        members = {member.node_id for member in self.set.members}
        for node_id in [*self.hellos]:
            silent = now - self.progress[node_id].heard_at
            if (
                node_id not in self.sessions
                and node_id not in members
                and silent * 1000 > self.config.forget_after_ms
            ):
                self._forget(node_id)

    def _forget(self, node_id: str) -> None:
        del self.hellos[node_id], self.progress[node_id]
        self.tracker.matches.pop(node_id, None)

    def _attach(self, session: MasterSession, hello: Hello, now: float) -> None:
        member = Member(hello.node_id, hello.incarnation)
        before = self.progress.get(hello.node_id)
        fresh = Progress(member, heard_at=now)
        if before is not None and before.member == member:
            fresh.caught_up_at = before.caught_up_at
        self.progress[hello.node_id] = fresh
        self.sessions[hello.node_id] = session
        self.hellos[hello.node_id] = hello
        self.tracker.attach(member, session.sent)

    def _another_node(self, older: MasterSession, hello: Hello, now: float) -> bool:
        """Whether two nodes claim one id: the same node reconnects from its endpoint and disk."""
        first = self.hellos[hello.node_id]
        same = (first.incarnation, first.endpoint) == (hello.incarnation, hello.endpoint)
        alive = older.streaming and (now - older.heard_at) * 1000 <= self.config.dead_after_ms
        return alive and not same

    def _acknowledge(self, session: MasterSession, ack: Ack, now: float) -> list[MasterAction]:
        hello = session.hello
        if hello is None or self.sessions.get(hello.node_id) is not session:
            return []
        each = self.progress[hello.node_id]
        if ack.state == PREPARING:
            each.heard_at = now
            return []
        self.tracker.sent(hello.node_id, session.sent)
        if not self.tracker.acknowledge(hello.node_id, ack):
            return session.refuse(
                f"an acknowledgement of {ack.durable} (received {ack.received}, dispatched "
                f"{ack.reput}) in epoch {ack.epoch}, incarnation {ack.incarnation}, is not valid: "
                f"this stream has sent up to {session.sent} in epoch {self.view.epoch}, to "
                f"incarnation {hello.incarnation}",
                retry=True,
            )
        each.heard_at = now
        each.fault = ack.state
        each.tables = dict(ack.tables)
        each.held(ack.durable, self.view.end_offset, now)
        self._confirm()
        return []

    def holds_all(self, member: Member) -> bool:
        """Whether this member of the set is known to hold all that was acknowledged."""
        if self.set.record.settled:
            return True
        durable = self.tracker.durable(member)
        return durable is not None and durable >= self.epoch_start

    def _confirm(self) -> int:
        if not self.config.mode.waits:
            self.view.confirm = self.tracker.advance((frozenset({self.me}),))
        elif self.set.record.settled:
            self.view.confirm = self.tracker.advance(self.set.in_force())
        return self.view.confirm

    def _durable(self) -> dict[str, int]:
        return {
            node_id: match.durable
            for node_id, match in self.tracker.matches.items()
            if match.durable is not None
        }

    def _live(self, member: Member, now: float) -> bool:
        if member == self.me:
            return True
        each = self.progress.get(member.node_id)
        return (
            each is not None
            and each.member == member
            and each.connected
            and not each.fault
            and self.tracker.durable(member) is not None
            and (now - each.heard_at) * 1000 <= self.config.dead_after_ms
        )
