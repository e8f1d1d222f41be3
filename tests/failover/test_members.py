"""Eight members of a group in processes of their own: they join, leave, die and freeze, and the
master is killed. Each message is handled, a queue has one owner, and who stays is not disturbed.

The order of what happens is that of a seed; what the machine does in between is not. How long a
join takes is measured on a machine that does nothing else.
"""

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from helpers.elected import Elected
from helpers.machine_speed import slowness
from helpers.running import ROOT, wait_until
from tandemlog import Admin, Message, Producer, TandemlogError

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

GROUP, TOPIC, QUEUES, MEMBERS = "work", "jobs", 16, 8
SEED = 36
ALL, SHARE = set(range(QUEUES)), QUEUES // MEMBERS
PAUSE_S, SILENCE_S = 1.0, 0.5
JOINS = 4


class Line(NamedTuple):
    at: float
    member: str
    what: str
    queue: int
    offset: int


class Members:
    """The processes, and what they wrote down."""

    def __init__(self, folder: Path, endpoints: list[str]) -> None:
        self._folder = folder
        self._endpoints = endpoints
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0

    def start(self) -> str:
        self._count += 1
        name = f"m{self._count}"
        command = [sys.executable, str(ROOT / "tests" / "helpers" / "group_worker.py")]
        command += [
            ",".join(self._endpoints),
            GROUP,
            TOPIC,
            name,
            str(self._folder / f"{name}.log"),
        ]
        with (self._folder / f"{name}.err").open("wb") as errors:
            self.running[name] = subprocess.Popen(command, cwd=ROOT, stderr=errors)
        return name

    def signal(self, name: str, number: int) -> None:
        self.running[name].send_signal(number)

    def end(self, name: str, number: int) -> None:
        process = self.running.pop(name)
        process.send_signal(number)
        process.wait(30)

    def lines(self) -> list[Line]:
        found = []
        for path in self._folder.glob("m*.log"):
            for row in path.read_text().splitlines():
                parts = row.split()
                if len(parts) == 5:
                    found.append(
                        Line(float(parts[0]), parts[1], parts[2], int(parts[3]), int(parts[4]))
                    )
        return sorted(found)

    def moves(self, since: float) -> list[Line]:
        """What was assigned, revoked and lost after that time."""
        moves = ("assigned", "revoked", "lost")
        return [each for each in self.lines() if each.at > since and each.what in moves]

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait(10)


class Load:
    """Puts one message to each queue every `interval_s` until it is left; `stored` are the places
    of what was acknowledged, `failed` is why it ended before."""

    def __init__(self, endpoints: list[str], interval_s: float = 0.05) -> None:
        self.stored: set[tuple[int, int]] = set()
        self.failed: Exception | None = None
        self._endpoints = endpoints
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with Producer(self._endpoints) as producer:
                self._put(producer)
        except (TandemlogError, TimeoutError) as error:
            self.failed = error

    def _put(self, producer: Producer) -> None:
        number = 0
        while not self._end.is_set():
            part = range(number, number + QUEUES)
            sent = [producer.send(Message(TOPIC, b"%d" % n, queue_id=n % QUEUES)) for n in part]
            for future in sent:
                result = future.result(60)
                self.stored.add((result.queue_id, result.queue_offset))
            number += QUEUES
            self._end.wait(self._interval_s)


def settled(admin: Admin, count: int) -> bool:
    try:
        described = admin.describe_group(GROUP)
    except TandemlogError:  # not yet, or no master now
        return False
    owned = [queue for member in described.members for queue in member.assigned]
    return (
        described.state == "stable"
        and len(described.members) == count
        and len(owned) == len(set(owned)) == QUEUES
    )


def worked_on(members: Members, member: str = "") -> set[int]:
    """Queues of which a message was handled, by this member or by any."""
    return {
        each.queue
        for each in members.lines()
        if each.what == "handled" and member in ("", each.member)
    }


def check_owners(lines: list[Line]) -> None:
    """A commit that was taken began while the queue was last assigned to its member."""
    owner: dict[int, str] = {}
    begun: dict[tuple[str, int], bool] = {}
    wrong = []
    for line in lines:
        if line.what == "assigned":
            owner[line.queue] = line.member
        elif line.what == "commits":
            begun[line.member, line.queue] = owner.get(line.queue) == line.member
        elif line.what == "committed" and not begun[line.member, line.queue]:
            wrong.append(line)
    assert not wrong, wrong[:5]


def pauses_of_moved(lines: list[Line], since: float) -> dict[int, float]:
    """By queue that changed its owner after `since`, the time between the last message that one
    handled and the first of the next."""
    last: dict[int, Line] = {}
    found: dict[int, float] = {}
    for line in lines:
        if line.what != "handled":
            continue
        before = last.get(line.queue)
        if before is not None and line.at > since and before.member != line.member:
            found.setdefault(line.queue, line.at - before.at)
        last[line.queue] = line
    return found


def longest_silence(lines: list[Line], queues: set[int], since: float, until: float) -> float:
    """Between two messages handled of one of `queues`, in a span of time."""
    times: defaultdict[int, list[float]] = defaultdict(lambda: [since])
    for line in lines:
        if line.what == "handled" and line.queue in queues and since < line.at < until:
            times[line.queue].append(line.at)
    return max(
        (later - before for each in times.values() for before, later in itertools.pairwise(each)),
        default=0.0,
    )


def test_members_come_and_go_and_the_master_changes(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    folder = tmp_path / "members"
    folder.mkdir()
    with Elected(tmp_path) as cluster, Admin(cluster.endpoints) as admin:
        cluster.wait_in_sync(count=3)
        admin.create_topic(TOPIC, QUEUES)
        members = Members(folder, cluster.endpoints)
        try:
            with Load(cluster.endpoints) as load:
                for _ in range(MEMBERS - 1):
                    members.start()
                wait_until("seven members", lambda: settled(admin, MEMBERS - 1), 60)
                wait_until("each queue to be worked on", lambda: worked_on(members) == ALL, 60)

                joins = time.monotonic()
                newest = members.start()
                wait_until("eight members", lambda: settled(admin, MEMBERS), 60)
                wait_until(
                    lambda: f"the new member to work: {load.failed}, {members.moves(joins)}",
                    lambda: len(worked_on(members, newest)) >= SHARE,
                    30,
                )
                moves = members.moves(joins)
                moved = {each.queue for each in moves if each.what in ("revoked", "lost")}
                assert moved == worked_on(members, newest), moves

                # a failover moves nothing
                quiet = time.monotonic()
                master = cluster.the_master()
                before = len(load.stored)
                master.kill()
                wait_until("puts to continue", lambda: len(load.stored) > before + 10 * QUEUES, 60)
                wait_until("all members at the new master", lambda: settled(admin, MEMBERS), 60)
                moves = members.moves(quiet)
                assert not moves, moves
                master.start(wait=False)

                frozen, killed, leaver = rng.sample(sorted(members.running), 3)
                members.signal(frozen, signal.SIGSTOP)
                members.end(killed, signal.SIGKILL)
                wait_until("two to be missed", lambda: settled(admin, MEMBERS - 2), 60)
                members.signal(frozen, signal.SIGCONT)
                wait_until("the frozen one to be back", lambda: settled(admin, MEMBERS - 1), 60)
                members.end(leaver, signal.SIGTERM)
                members.start()
                wait_until("another one instead", lambda: settled(admin, MEMBERS - 1), 60)

            assert load.failed is None

            def handled() -> set[tuple[int, int]]:
                return {(e.queue, e.offset) for e in members.lines() if e.what == "handled"}

            wait_until("every message to be handled", lambda: load.stored <= handled(), 60)
            for name in list(members.running):
                members.end(name, signal.SIGTERM)
            lines = members.lines()
            check_owners(lines)
            committed = admin.committed(GROUP, TOPIC)
            last = {
                queue: max(e.offset for e in lines if e.queue == queue) for queue in range(QUEUES)
            }
            assert {queue: committed[TOPIC, queue] - 1 for queue in range(QUEUES)} == last
        finally:
            members.close()


@pytest.mark.quiet
def test_a_join_pauses_what_moves_for_a_second_and_nothing_else(tmp_path: Path) -> None:
    """Of a few joins the best counts: other work on the machine makes each of them longer, and a
    defect makes all of them longer."""
    folder = tmp_path / "members"
    folder.mkdir()
    joins: list[Join] = []
    with Elected(tmp_path) as cluster, Admin(cluster.endpoints) as admin:
        cluster.wait_in_sync(count=3)
        admin.create_topic(TOPIC, QUEUES)
        members = Members(folder, cluster.endpoints)
        try:
            # slower than the members handle it: a backlog is no pause of the group's
            with Load(cluster.endpoints, interval_s=0.15):
                for _ in range(MEMBERS - 1):
                    members.start()
                wait_until("each queue to be worked on", lambda: worked_on(members) == ALL, 60)
                for _ in range(JOINS):
                    joins.append(measured_join(admin, members))
                    if joins[-1].is_short:
                        break
        finally:
            members.close()
    assert any(join.is_short for join in joins), joins


class Join(NamedTuple):
    pause_s: float
    silence_s: float

    @property
    def is_short(self) -> bool:
        slow = slowness()
        return self.pause_s <= PAUSE_S * slow and self.silence_s <= SILENCE_S * slow


def measured_join(admin: Admin, members: Members) -> Join:
    """One more member joins, has its share of the queues, and leaves again."""
    wait_until("seven members", lambda: settled(admin, MEMBERS - 1), 60)
    time.sleep(1)  # they have all started, and use the processors no more
    began = time.monotonic()
    newest = members.start()
    wait_until("the new member to work", lambda: len(worked_on(members, newest)) == SHARE, 60)
    ended = time.monotonic()
    lines = members.lines()
    members.end(newest, signal.SIGTERM)
    moved = pauses_of_moved(lines, began)
    assert len(moved) == SHARE
    silence_s = longest_silence(lines, ALL - set(moved), began, ended)
    print(f"pause of moved queues {max(moved.values()):.3f} s, of others {silence_s:.3f} s")
    return Join(max(moved.values()), silence_s)


def test_the_check_of_owners_finds_a_late_commit() -> None:
    def line(at: float, member: str, what: str) -> Line:
        return Line(at, member, what, 0, 1)

    good = [line(1, "a", "assigned"), line(2, "a", "commits"), line(3, "b", "assigned")]
    check_owners([*good, line(4, "a", "committed")])
    late = [line(4, "a", "commits"), line(5, "a", "committed")]
    with pytest.raises(AssertionError):
        check_owners([*good, *late])
