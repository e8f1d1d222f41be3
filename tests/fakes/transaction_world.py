"""Transactions at random on a real store: masters come and go, logs are cut, requests repeat.

    actions   send a half · confirm a part of the log · dispatch · commit · roll back · give up ·
              finish · crash or restart, with a cut above what is confirmed · forget unconfirmed
    told      what a client heard once it was confirmed, which must hold for ever

At the end all is confirmed and finished, and compared with what was told. Each rule that makes this
hold can be switched off (RULES): then some seed must find it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fakes.halves import half_put, put_halves
from fakes.stores import CONFIG, Bench, records_of
from tandemlog.format.constants import HALF_TOPIC, OP_HALF_TOPIC
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog.format.transaction.half import ended_halves
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.folds.transaction_fold import TransactionFold
from tandemlog_server.storage.services.transaction_desk import (
    Ended,
    EndRequest,
    TransactionDesk,
)
from tandemlog_server.storage.services.transaction_errors import (
    TransactionDecidedError,
    TransactionsNotReadyError,
    UnknownTransactionError,
)

GROUP = "g"
MOST_TRANSACTIONS = 100
"""Of one world, and the messages that their group reads."""


class BrokenError(AssertionError):
    """A promise was broken."""


@dataclass
class Sent:
    """A transaction as its client sees it: halves that were acknowledged (and those of which it is
    not known), the offset that it sets, and the outcome that it was told."""

    name: str
    bodies: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    offset: int | None = None
    told: bool | None = None
    wanted: bool | None = None


@dataclass
class Waiting:
    """An answer that is given once the log is confirmed up to `end`."""

    end: int
    tell: Callable[[], None]


class TransactionWorld:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        config = replace(
            CONFIG,
            commit_log_file_size=1 << 16,
            queue_file_size=20 * 1000,
            confirm=ConfirmSource.REPLICATION,
            max_batch_size=self.random.choice([(256 << 10) + 500, 4 << 20]),
        )
        self.bench = Bench(config, topics=("T", "IN"))
        self.epoch = 0
        self.sent: dict[str, Sent] = {}
        self.waiting: list[Waiting] = []
        self.reached = -1
        self.desk = TransactionDesk(self.bench.store)
        self.lead()
        self.bench.put(MOST_TRANSACTIONS, "IN", size=0)
        self.bench.store.flush()
        self.bench.store.confirmed.advance(self.bench.store.log.wrote.value)

    # ---- terms

    def lead(self) -> None:
        self.epoch += 1
        self.bench.store.become_master(self.epoch)
        self.desk = TransactionDesk(self.bench.store)
        self.desk.begin()

    def fail_over(self) -> None:
        """Another master, with a log that lacks a part of what was not confirmed."""
        store = self.bench.store
        self.desk.end()
        store.become_slave()
        store.flush()
        cut = self.random.randint(store.confirmed.value, store.log.wrote.value)
        store.truncate(cut)
        self.waiting = [each for each in self.waiting if each.end <= store.confirmed.value]
        how = self.random.choice(["stay", "reopen", "kill", "crash"])
        if how != "stay":
            confirmed = store.confirmed.value
            store.persist()
            getattr(self.bench, how)()
            self.bench.store.confirmed.advance(min(confirmed, self.bench.store.log.wrote.value))
        self.lead()

    # ---- what happens

    def step(self) -> None:
        name = self.random.choice(list(self.sent)) if self.sent else "0"
        action = self.random.choices(
            ["begin", "send", "end", "confirm", "dispatch", "finish", "fail over", "give up"],
            [3, 6, 6, 8, 6, 4, 2, 1],
        )[0]
        if action == "begin" or not self.sent:
            self.begin()
        elif action == "send":
            self.send(self.sent[name])
        elif action == "end":
            self.end(self.sent[name])
        elif action == "confirm":
            self.confirm()
        elif action == "dispatch":
            self.dispatch()
        elif action == "finish":
            self.attempt(self.desk.finish)
        elif action == "give up" and self.random.random() < 0.3:
            with suppress(TransactionDecidedError):
                self.attempt(lambda: self.desk.give_up(name))
        elif action == "fail over":
            self.fail_over()

    def begin(self) -> None:
        name = f"tx{len(self.sent)}"
        self.sent[name] = Sent(name)
        if self.random.random() < 0.4:
            self.sent[name].offset = len(self.sent)

    def send(self, sent: Sent) -> None:
        if sent.wanted is not None and self.random.random() < 0.9:
            return
        body = f"{sent.name}-{len(sent.bodies) + len(sent.doubtful)}"
        try:
            result = put_halves(self.bench, half_put(body, sent.name))
        except BatchRefusedError:
            return
        if sent.wanted is not None:
            sent.doubtful.append(body)
            return

        def stored() -> None:
            sent.doubtful.remove(body)
            sent.bodies.append(body)

        sent.doubtful.append(body)
        self.waiting.append(Waiting(result.end_offset, stored))

    def end(self, sent: Sent) -> None:
        """A client that knows all its messages to be stored may commit; it repeats what it wants
        until it was told, and somebody else may want something else."""
        if sent.doubtful and sent.wanted is None:
            return
        if sent.wanted is None:
            sent.wanted = self.random.random() < 0.6
        wanted = sent.wanted if self.random.random() < 0.8 else not sent.wanted
        count = len(sent.bodies) if sent.wanted else None
        offsets = () if sent.offset is None else (GroupOffset(GROUP, "IN", 0, sent.offset),)
        request = EndRequest(sent.name, count, offsets if wanted else ())
        decide = self.desk.commit if wanted else self.desk.roll_back
        try:
            ended = self.attempt(lambda: decide(request))
        except TransactionDecidedError as error:
            # it is said once that is confirmed, which it is where the fold has it
            if sent.name in self.bench.store.transactions.outcomes:
                self.tell(sent, committed=error.committed)
            return
        if ended is None or (not sent.bodies and not offsets):
            return
        if not wanted and not ended.end_offset and not ended.again:
            return  # nothing was known of it, and nothing is promised
        committed = ended.committed
        self.waiting.append(Waiting(ended.end_offset, lambda: self.tell(sent, committed=committed)))

    def tell(self, sent: Sent, *, committed: bool) -> None:
        if sent.told is not None and sent.told != committed:
            raise BrokenError(f"{sent.name}: told {sent.told}, then {committed}")
        sent.told = committed

    def attempt(self, work: Callable[[], Any]) -> Ended | None:
        try:
            result = work()
        except (TransactionsNotReadyError, UnknownTransactionError):
            return None
        return result if isinstance(result, Ended) else None

    def confirm(self) -> None:
        store = self.bench.store
        store.flush()
        store.confirmed.advance(self.random.randint(store.confirmed.value, store.log.wrote.value))
        self.answer()

    def answer(self) -> None:
        confirmed = self.bench.store.confirmed.value
        ready = [each for each in self.waiting if each.end <= confirmed]
        self.waiting = [each for each in self.waiting if each.end > confirmed]
        for each in ready:
            each.tell()

    def dispatch(self) -> None:
        reput = self.bench.store.reput
        for _ in range(self.random.randint(1, 3)):
            reput.run_once()
        offset = self.bench.store.consumer_offsets.offset(GROUP, "IN", 0)
        if offset is not None:
            if offset < self.reached:
                raise BrokenError(f"the group's offset went back from {self.reached} to {offset}")
            self.reached = offset

    # ---- at the end

    def settle(self) -> None:
        store = self.bench.store
        for _ in range(20):
            store.flush()
            store.confirmed.advance(store.log.wrote.value)
            self.answer()
            store.reput.run_to()
            if not self.desk.finish() and store.confirmed.value == store.log.wrote.value:
                break

    def check(self) -> None:
        self.settle()
        store = self.bench.store
        fold = store.transactions
        came = [body.decode() for body in self.bench.bodies("T")]
        if len(came) != len(set(came)):
            raise BrokenError(f"a message came twice: {sorted(came)}")
        committed_offsets = [-1]
        for sent in self.sent.values():
            mine = {body for body in came if body.rpartition("-")[0] == sent.name}
            outcome = fold.outcomes.get(sent.name)
            if sent.told is not None and outcome != sent.told:
                raise BrokenError(f"{sent.name}: told {sent.told}, it is {outcome}")
            if outcome is True and sent.wanted:
                missing = set(sent.bodies) - mine
                if missing or mine - set(sent.bodies):
                    raise BrokenError(f"{sent.name}: {sorted(mine)} of {sent.bodies}")
            if outcome is not True and mine:
                raise BrokenError(f"{sent.name} is not committed, and {sorted(mine)} came")
            if outcome and sent.told and sent.offset is not None and sent.wanted:
                committed_offsets.append(sent.offset)
        offset = store.consumer_offsets.offset(GROUP, "IN", 0)
        if (offset if offset is not None else -1) < max(committed_offsets):
            raise BrokenError(f"the group's offset is {offset} of {max(committed_offsets)}")
        self.check_broker()
        self.check_fold()

    def check_broker(self) -> None:
        """A broker that takes the store over finds no half open that has ended."""
        halves, ops = self.bench.store.transactions.broker_offsets()
        ended = {
            number
            for record in self.records(OP_HALF_TOPIC)
            if record.queue_offset >= ops
            for number in ended_halves(record)
        }
        still = {each.queue_offset for each in self.bench.store.transactions.halves.values()}
        opened = {
            each.queue_offset for each in self.records(HALF_TOPIC) if each.queue_offset >= halves
        }
        if opened - ended != still:
            raise BrokenError(f"a broker opens {sorted(opened - ended)}, {sorted(still)} are open")

    def records(self, topic: str) -> Iterator[Any]:
        result = self.bench.store.reader.get(topic, 0, 0, 0, 1 << 24)
        yield from records_of(result) if result.count else []

    def check_fold(self) -> None:
        """The same log gives the same state."""
        before = self.bench.store.transactions.snapshot().encode()
        self.bench.store.close()
        path = self.bench.store._parts.paths.folds / TransactionFold.name
        if self.bench.files.status(path) is not None:
            self.bench.files.unlink(path)
        store = self.bench.open()
        store.confirmed.advance(store.log.wrote.value)
        store.reput.run_to()
        after = store.transactions.snapshot().encode()
        if before != after:
            raise BrokenError("a fold of the whole log says something else")


@contextmanager
def without(rule: str) -> Iterator[None]:
    """A rule is switched off."""
    target, name, wrong = RULES[rule]
    right = target.__dict__[name]
    setattr(target, name, wrong)
    try:
        yield
    finally:
        setattr(target, name, right)


def _never_known(desk: TransactionDesk, transaction_id: str, *, committed: bool) -> None:
    return None


def _commit_again(fold: Any, said: Any) -> None:
    fold.outcomes.pop(said.transaction_id, None)
    _RIGHT_COMMIT(fold, said)


def _remember_nothing(desk: Any, request: Any, ended: Ended) -> Ended:
    return ended


def _to_finish_all(desk: Any) -> list[Any]:
    desk._taken.clear()
    return list(_RIGHT_TO_FINISH(desk))


def _op_ends(fold: Any, queue_offset: int) -> None:
    found = fold.halves.get(fold._by_queue_offset.get(queue_offset, -1))
    if found is not None:
        fold._end(found)


_RIGHT_COMMIT = TransactionFold._commit
_RIGHT_TO_FINISH = TransactionDesk._to_finish

RULES: dict[str, tuple[type, str, Any]] = {
    "wait for the last master's log": (
        TransactionDesk, "ready", property(lambda desk: desk._began_at is not None),
    ),
    "the first outcome is the only one": (TransactionDesk, "_outcome", _never_known),
    "remember what is appended": (TransactionDesk, "_remember", _remember_nothing),
    "what is taken is not written again": (TransactionDesk, "_to_finish", _to_finish_all),
    "finish what was decided": (TransactionDesk, "finish", lambda desk: 0),
    "an OP record alone decides": (TransactionFold, "_record_end", _op_ends),
    "offsets move forward": (
        TransactionFold, "_offset", lambda fold, row: -1,
    ),
}  # fmt: skip
"""Class, name and a wrong version of what a rule is made of."""
