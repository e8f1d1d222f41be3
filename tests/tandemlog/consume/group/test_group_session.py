"""What one member does with what the master tells it."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tandemlog.consume.group.group_session import GroupSession, rows_of
from tandemlog.format.calls import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from tandemlog.v1 import broker_pb2

Queue = tuple[str, int]
A, B, C = ("t", 0), ("t", 1), ("u", 0)


def session(**fields: object) -> GroupSession:
    made = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, **fields}
    return GroupSession("g", "m", ("t", "u"), **made)  # type: ignore[arg-type]


def told(
    queues: Iterable[Queue], epoch: int = 1, *, settled: bool = True
) -> broker_pb2.GroupHeartbeatResponse:
    return broker_pb2.GroupHeartbeatResponse(
        member_epoch=epoch,
        group_epoch=epoch,
        assigned=rows_of(set(queues)),
        heartbeat_interval_ms=3_000,
        settled=settled,
    )


def owning(*queues: Queue) -> GroupSession:
    member = session()
    todo = member.heard(member.request(wait=False).number, 0.0, told(queues))
    member.took(todo.take)
    return member


def owned_in(request: broker_pb2.GroupHeartbeatRequest) -> set[Queue]:
    return {(row.topic, queue_id) for row in request.owned for queue_id in row.queue_ids}


def test_a_member_joins_and_owns_what_it_has_taken() -> None:
    member = session(instance_id="i", client_id="c")
    first = member.request(wait=False)
    assert (first.member_epoch, first.number, first.instance_id) == (JOIN, 1, "i")
    assert (list(first.topics), first.session_timeout_ms) == (["t", "u"], 10_000)
    todo = member.heard(1, 0.0, told([A, B], epoch=4))
    assert set(todo.take) == {A, B}
    assert member.is_member
    assert not member.settled
    assert not member.owned
    assert member.took(todo.take) == {A, B}
    assert member.settled
    second = member.request(wait=True)
    assert (second.member_epoch, second.number, second.wait_ms) == (4, 2, 3_000)
    assert owned_in(second) == {A, B}


def test_what_is_to_be_taken_is_reported_so_that_no_other_member_gets_it() -> None:
    member = session()
    todo = member.heard(member.request(wait=False).number, 0.0, told([A, B]))
    assert owned_in(member.request(wait=False)) == {A, B}
    member.heard(member.number, 1.0, told([B]))
    assert owned_in(member.request(wait=False)) == {B}
    assert member.took(todo.take) == {B}


def test_a_response_that_is_not_settled_yet_is_no_membership() -> None:
    member = session()
    assert member.heard(member.request(wait=False).number, 0.0, told([], epoch=JOIN)).take == {}
    assert not member.is_member
    assert member.request(wait=False).member_epoch == JOIN


def test_what_is_not_assigned_any_more_is_given_up_before_it_is_reported() -> None:
    member = owning(A, B)
    todo = member.heard(member.request(wait=True).number, 1.0, told([B], epoch=2))
    assert (set(todo.take), todo.give_up) == (set(), frozenset({A}))
    assert owned_in(member.request(wait=False)) == {A, B}
    assert not member.settled
    assert not member.heard(member.number, 2.0, told([B], epoch=2)).give_up, "asked once"
    assert member.gave_up([A]).take == {}
    assert owned_in(member.request(wait=False)) == {B}
    assert member.settled


def test_a_queue_that_stays_is_never_asked_for() -> None:
    member = owning(A, B)
    for epoch, queues in enumerate(([A], [A, C], [A], [A, B]), start=2):
        todo = member.heard(member.request(wait=True).number, epoch, told(queues, epoch))
        assert A not in todo.give_up
        assert A not in todo.take


def test_what_is_assigned_again_while_it_is_given_up_is_taken_again() -> None:
    member = owning(A)
    member.heard(member.request(wait=True).number, 1.0, told([], 2))
    todo = member.heard(member.request(wait=True).number, 2.0, told([A], 3))
    assert (set(todo.take), todo.give_up) == (set(), frozenset())
    assert set(member.gave_up([A]).take) == {A}


def test_offsets_that_were_asked_for_before_do_not_count() -> None:
    member = session()
    old = member.heard(member.request(wait=False).number, 0.0, told([A])).take
    member.heard(member.request(wait=True).number, 1.0, told([]))
    new = member.heard(member.request(wait=True).number, 2.0, told([A])).take
    assert member.took(old) == frozenset()
    assert member.took(new) == {A}


def test_an_old_response_says_nothing() -> None:
    member = owning(A)
    early, late = member.request(wait=True).number, member.request(wait=True).number
    todo = member.heard(early, 4.0, told([], 2))
    assert (set(todo.take), todo.give_up, member.epoch) == (set(), frozenset(), 1)
    member.heard(late, 5.0, told([A, B], 3))
    assert (member.deadline, member.epoch) == (15.0, 3)


def test_time_ends_what_is_owned_before_the_master_can_give_it_away() -> None:
    member = owning(A)
    assert member.deadline == 10.0
    member.heard(member.request(wait=True).number, 2.5, told([A]))
    assert not member.out_of_time(12.49).lost
    assert member.out_of_time(12.5).lost == {A}
    assert owned_in(member.request(wait=True)) == set()
    assert not member.out_of_time(13.0).lost
    assert member.epoch == 1, "a master that still knows it gives the queues again"
    assert set(member.heard(member.number, 14.0, told([A])).take) == {A}


def test_a_fenced_member_loses_all_and_joins_as_another() -> None:
    member = owning(A, B)
    assert member.fenced("n").lost == {A, B}
    again = member.request(wait=True)
    assert (again.member_id, again.member_epoch, again.number) == ("n", JOIN, 2)
    assert member.deadline is None


def test_the_last_report() -> None:
    assert owning(A).goodbye().member_epoch == LEAVE
    member = session(instance_id="i")
    last = member.goodbye()
    assert (last.member_epoch, owned_in(last)) == (LEAVE_FOR_A_WHILE, set())


QUEUES = [("t", number) for number in range(4)]


class Meeting(RuleBasedStateMachine):
    """A master that keeps to the protocol, and a member whose messages are lost, late and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.member = session()
        self.now = 0.0
        self.sent: list[tuple[broker_pb2.GroupHeartbeatRequest, float]] = []
        self.answers: list[tuple[int, float, broker_pb2.GroupHeartbeatResponse]] = []
        self.takes: list[dict[Queue, int]] = []
        self.leaving: set[Queue] = set()
        self.reading: set[Queue] = set()
        # the master's side
        self.epoch = 0
        self.target: set[Queue] = set()
        self.mine: set[Queue] = set()
        self.held: set[Queue] = set()
        self.heard = 0
        self.heard_at: float | None = None

    def _do(self, todo: object) -> None:
        if todo.take:  # type: ignore[attr-defined]
            self.takes.append(dict(todo.take))  # type: ignore[attr-defined]
        self.leaving |= todo.give_up  # type: ignore[attr-defined]
        self.reading -= todo.lost  # type: ignore[attr-defined]
        self.leaving -= todo.lost  # type: ignore[attr-defined]

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._do(self.member.out_of_time(self.now))
        if self.heard_at is not None and self.now - self.heard_at >= 10:
            assert not self.reading, "others get the queues now"
            self.mine, self.held, self.heard_at, self.epoch = set(), set(), None, 0

    @rule()
    def report(self) -> None:
        self.sent.append((self.member.request(wait=True), self.now))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), keep=st.booleans())
    def arrives(self, data: st.DataObject, keep: bool) -> None:
        index = data.draw(st.integers(0, len(self.sent) - 1))
        request, sent_at = self.sent[index] if keep else self.sent.pop(index)
        if request.member_id != self.member.member_id or request.number <= self.heard:
            return
        self.heard = request.number
        if request.member_epoch == JOIN:
            if self.epoch == 0:
                self.epoch = 1
        elif self.epoch == 0:
            self.answers.append((-1, sent_at, broker_pb2.GroupHeartbeatResponse()))
            return
        self.heard_at = self.now
        self.held = owned_in(request) & self.mine
        self._free()
        self.mine |= self.target
        self.held |= self.target
        settled = self.mine == self.target
        answer = told(self.target, self.epoch, settled=settled)
        self.answers.append((request.number, sent_at, answer))

    def _free(self) -> None:
        """What is to go to others, and was neither reported nor told since, they get."""
        self.mine &= self.target | self.held

    @rule(queues=st.sets(st.sampled_from(QUEUES)))
    def rebalance(self, queues: set[Queue]) -> None:
        self.target = queues
        self._free()
        if self.epoch:
            self.epoch += 1

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), lost=st.booleans())
    def answered(self, data: st.DataObject, lost: bool) -> None:
        index = data.draw(st.integers(0, len(self.answers) - 1))
        number, sent_at, answer = self.answers.pop(index)
        if lost:
            return
        if number == -1:
            self._do(self.member.fenced(f"m{self.now}{self.member.number}"))
        else:
            self._do(self.member.heard(number, sent_at, answer))
            self._do(self.member.out_of_time(self.now))

    @precondition(lambda self: self.takes)
    @rule()
    def offsets_come(self) -> None:
        self.reading |= self.member.took(self.takes.pop(0))

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def caller_lets_go(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(sorted(self.leaving)))
        self.leaving.discard(queue)
        self.reading.discard(queue)
        self._do(self.member.gave_up([queue]))

    @invariant()
    def reads_what_is_its_own(self) -> None:
        assert self.reading == self.member.owned
        assert self.reading <= self.mine, "another member may have it"


TestMeeting = Meeting.TestCase


@given(st.sets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 70_000))))
def test_rows_name_all_queues(queues: set[Queue]) -> None:
    found = {(row.topic, queue_id) for row in rows_of(queues) for queue_id in row.queue_ids}
    assert found == queues
