"""A classic client's transactions on a real store: halves, decisions by 37, checks by 39, and other
masters with a part of the log."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fakes.batches import Put, batch_of
from fakes.pushed_to import PushedTo
from fakes.stores import CONFIG, Bench
from tandemlog.format.constants import UNIQ_KEY
from tandemlog.format.record.properties import encode_properties
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity
from tandemlog_server.node.access.patterns import Patterns
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.node.remoting.sends.transaction_checks import TransactionChecks
from tandemlog_server.node.remoting.sends.transaction_methods import TransactionMethods
from tandemlog_server.node.transactions.check_board import Asked, CheckBoard
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.half_messages import make_half
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.services.transaction_desk import Ended, EndRequest, TransactionDesk

GROUP = "billing"
STRANGER = Caller(who=Who(Identity("stranger", write=Patterns(["U"])), frozenset()))
"""May write another topic."""
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Place(NamedTuple):
    """What the answer to a send says of a half."""

    log_offset: int
    queue_offset: int
    key: str


@dataclass
class Outgoing:
    """A message as the put path has it."""

    properties: dict[str, str]
    topic: str = "T"
    queue_id: int = 1
    sys_flag: int = 4
    born_timestamp: int = 0
    reconsume_times: int = 0


@dataclass
class ProducerAt:
    connection: PushedTo


@dataclass(frozen=True)
class Limits:
    check_after_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_checks: int = 15


class ClassicTransactions:
    """See the module; `Bench` has the store, its clock and its disk."""

    def __init__(self) -> None:
        config = replace(
            CONFIG,
            commit_log_file_size=1 << 16,
            queue_file_size=20 * 1000,
            confirm=ConfirmSource.REPLICATION,
        )
        self.bench = Bench(config)
        self.epoch = 0
        self.caller = Caller()
        self.connection = PushedTo()
        self.producers = [ProducerAt(self.connection)]
        self.turns = ReadTurns(1, 1 << 20)
        self.lead()

    def close(self) -> None:
        self.turns.close()
        self.bench.store.close()

    # ---- masters

    def lead(self) -> None:
        self.epoch += 1
        self.bench.store.become_master(self.epoch)
        self.desk = TransactionDesk(self.bench.store)
        self.desk.begin()
        self.board = CheckBoard()
        self.leads = True
        me: Any = self
        store = self.bench.store
        self.methods = TransactionMethods(store, me, self.turns)
        self.checks = TransactionChecks(
            store, me, self.turns, lambda group: self.producers, lambda each: self.caller
        )

    def fail_over(self, keep: int | None = None, how: str = "kill") -> None:
        """Another master, whose log ends at `keep`: by default with what is confirmed."""
        store = self.bench.store
        self.desk.end()
        store.become_slave()
        store.flush()
        confirmed = store.confirmed.value
        store.truncate(confirmed if keep is None else keep)
        store.persist()
        getattr(self.bench, how)()
        store = self.bench.store
        store.confirmed.advance(min(confirmed, store.log.wrote.value))
        self.lead()

    def confirm(self) -> None:
        store = self.bench.store
        store.flush()
        store.confirmed.advance(store.log.wrote.value)

    # ---- TransactionEnds

    async def settle(self) -> None:
        self.confirm()
        self.bench.store.reput.run_to()

    settle_unconfirmed = settle

    async def end(self, request: EndRequest, *, commits: bool) -> Ended:
        return self.desk.commit(request) if commits else self.desk.roll_back(request)

    # ---- a client

    def send(self, key: str, *, body: str = "", group: str = GROUP, serial: int = 0) -> Place:
        sent = Outgoing(
            {UNIQ_KEY: key, "TRAN_MSG": "true", "PGROUP": group},
            born_timestamp=self.bench.clock.now_ms(),
        )
        make_half(sent, producer_group=group, serial=serial or self.bench.store.log.wrote.value)
        self.bench.clock.advance(0.001)
        put = Put(
            sent.topic,
            sent.queue_id,
            (body or key).encode(),
            encode_properties(sent.properties),
            sys_flag=sent.sys_flag,
        )
        segment = self.bench.store.put(batch_of([put])).segments[0]
        return Place(segment.physical_offset, int(segment.queue_offsets[0]), key)

    async def decide(self, place: Place, outcome: int = COMMIT, **changes: Any) -> Command | None:
        fields = {
            "producerGroup": GROUP,
            "tranStateTableOffset": str(place.queue_offset),
            "commitLogOffset": str(place.log_offset),
            "commitOrRollback": str(outcome),
            "msgId": place.key,
            "transactionId": place.key,
            "fromTransactionCheck": "false",
        } | changes
        request = Command(RequestCode.END_TRANSACTION, flag=ONEWAY_FLAG, fields=fields)
        method = self.methods.methods()[RequestCode.END_TRANSACTION]
        return await method.serve(RemotingCall(request, self.caller, self.connection))

    async def look(self, limits: Limits | None = None) -> list[str]:
        """What the master does now and then: transactions that are to be given up; the others are
        asked about."""
        await self.settle()
        store, fold = self.bench.store, self.bench.store.transactions
        now_ms = store.clock.now_ms()
        with fold.lock:
            asked = [
                Asked(name, halves[0].half.group, (now_ms - halves[0].store_timestamp) / 1000, 0)
                for name, halves in fold.transactions()
                if halves[0].undecided
            ]
        exhausted = self.board.look(asked, limits or Limits(), store.clock.elapsed())
        await self.checks.look()
        return exhausted

    async def bodies(self) -> list[str]:
        """Of the messages that consumers see, once all is finished."""
        await self.settle()
        while self.desk.finish():
            await self.settle()
        return [each.decode() for each in self.bench.bodies("T", 1)]

    def open_keys(self) -> list[str]:
        fold = self.bench.store.transactions
        return [each.half.key for each in fold.halves.values()]


def asked_places(connection: PushedTo) -> list[Place]:
    """The halves that this client was asked about."""
    return [
        Place(int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"]), fields["msgId"])
        for code, fields, _ in connection.pushed
        if code == RequestCode.CHECK_TRANSACTION_STATE
    ]
