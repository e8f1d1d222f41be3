"""The slave's side of one stream: a machine without I/O, clock or loop.

    GREETING ──answer──▶ PREPARING ──prepared──▶ FOLLOWING ──lost, refused──▶ CLOSED
                 │            └─ the log is cut to where it equals the master's ─┘
                 └─ resync: the log is set aside, and a new stream begins with a new incarnation

Nothing is acknowledged before PREPARING is over, and the heartbeats until then carry that state:
the log may still hold bytes that are not the master's. Every action on the store is returned in the
order in which it must be executed; chunks that arrive while the store still prepares queue up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tandemlog.format.constants import Buffer
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import common_pb2

from ..config import HaConfig
from ..errors import HandshakeRefusedError, ProtocolError
from ..protocol.chunk_codec import Chunk
from ..protocol.frames import (
    PREPARING,
    Ack,
    Answer,
    Hello,
    HelloAction,
    MasterFrame,
    MemberList,
    Metadata,
    Refusal,
    SlaveFrame,
)
from ..protocol.handshake import SlaveView, check_answer
from ..protocol.prologue import KIND as PROLOGUE
from ..protocol.table_pieces import Assembly, Piece
from ..state import MAX_KNOWN_NODES, Member


class SlaveState(Enum):
    """GREETING until the answer, PREPARING until the logs are equal; see the module."""

    GREETING = "greeting"
    PREPARING = "preparing"
    FOLLOWING = "following"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Send:
    """`frame` goes out; an acknowledgement that still waits to go is replaced by a newer one."""

    frame: SlaveFrame


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the stream. `refused`: the logs cannot be joined; `retry` False: an operator must act;
    `silent`: the master's process does not respond, and `reason` is what the network said of it."""

    reason: str
    refused: bool = False
    retry: bool = True
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SeeMembers:
    """All nodes as the master sees them, for clients that ask this node; nothing is stored."""

    nodes: Sequence[common_pb2.NodeStatus]


@dataclass(frozen=True, slots=True)
class CheckProof:
    """The own bytes start..end must have this CRC-32, else the logs have diverged."""

    start: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class AcceptEpoch:
    """Remember durably the master and that nothing below `epoch` is followed any more."""

    epoch: int
    master: Member
    known_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KnowNodes:
    """These nodes have come into the in-sync set: remember them durably."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class BeginAt:
    """The log is empty: it takes the master's file size and starts at `offset`."""

    offset: int
    file_size: int


@dataclass(frozen=True, slots=True)
class TakePrologue:
    """What came before the log's begin, by the master (prologue.py)."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log and all that is derived from it to `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdoptEpochs:
    """The log equals the master's below `offset`: take its epoch table up to there."""

    entries: tuple[EpochEntry, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move the log away and start empty at `offset`, as a new incarnation."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """All before it is done: flush, then tell the session what is durable."""


@dataclass(frozen=True, slots=True)
class TakeDamage:
    """The master's own log has no record in start .. end-1: its bytes are taken as they are."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Append:
    """Store `data` at `offset`; `entry` begins with it where it is not None. `crc`: CRC-32 of the
    bytes as the master has read them, None if the master sent none."""

    offset: int
    data: Buffer
    entry: EpochEntry | None
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Confirm:
    """The master's confirm offset and end; the own offset is at most what is durable here."""

    offset: int
    master_end: int


@dataclass(frozen=True, slots=True)
class ReplaceTable:
    """Take the master's table in place of the own one."""

    update: Metadata


StoreAction: TypeAlias = (
    CheckProof
    | AcceptEpoch
    | KnowNodes
    | BeginAt
    | TakePrologue
    | Truncate
    | AdoptEpochs
    | SetAside
    | TakeDamage
    | Prepared
    | Append
    | Confirm
    | ReplaceTable
)
SlaveAction: TypeAlias = Send | Disconnect | SeeMembers | StoreAction


class SlaveSession:
    """See the module. `hello` is what this node says of itself, `me` what it insists on."""

    def __init__(self, hello: Hello, me: SlaveView, config: HaConfig, now: float) -> None:
        self.state = SlaveState.GREETING
        self.hello = hello
        self.me = me
        self.answer: Answer | None = None
        self.expected = 0
        self.durable = 0
        self.reput = 0
        self.fault = ""
        self.heard_at = now
        self.sent_at = now
        self.confirm = 0
        self.master_end = 0
        self.tables: dict[str, int] = {}
        self.round = 0
        self._assembly = Assembly()
        self._known: frozenset[str] = frozenset()
        self._prologue_due = False
        self._last_epoch = hello.epochs[-1] if hello.epochs else None
        self._config = config

    def start(self, now: float) -> list[SlaveAction]:
        """What to do once the stream is open: greet. `now` is monotonic seconds, here as below."""
        self.sent_at = now
        return [Send(self.hello)]

    def receive(self, frame: MasterFrame, now: float) -> list[SlaveAction]:
        """Take a frame of the master in; what to do, in that order. A frame out of turn ends it."""
        if self.state is SlaveState.CLOSED:
            return []
        self.heard_at = now
        try:
            if isinstance(frame, Refusal):
                return self._disconnect(frame.reason, refused=True, retry=frame.retry)
            if isinstance(frame, Answer):
                return self._answered(frame)
            if isinstance(frame, MemberList):
                # also before the answer: a master that compares logs shows that it is alive
                return [SeeMembers(frame.nodes), *self._in_sync_nodes(frame.nodes)]
            if self.answer is None:
                raise ProtocolError("the master's first frame does not answer the hello")
            if isinstance(frame, Chunk):
                return self._chunk(frame) + self._answer_round(frame, now)
            return self._piece(frame)
        except HandshakeRefusedError as refused:
            return self._disconnect(refused.reason, refused=True, retry=refused.retry)
        except ProtocolError as error:
            return self._disconnect(str(error))

    def prepared(self, durable: int, reput: int, now: float) -> list[SlaveAction]:
        """The log equals the master's up to its end now, and `durable` of it is on disk."""
        if self.state is not SlaveState.PREPARING:
            return []
        self.state = SlaveState.FOLLOWING
        self.durable, self.reput = durable, reput
        return [self._ack(now)]

    def stored(self, durable: int, reput: int, now: float) -> list[SlaveAction]:
        """The log is durable up to `durable` and dispatched up to `reput`: acknowledge that."""
        if self.state is not SlaveState.FOLLOWING or self.fault:
            return []
        self.durable, self.reput = max(self.durable, durable), reput
        return [self._ack(now)]

    def failed(self, reason: str, now: float) -> list[SlaveAction]:
        """The store takes no more bytes: acknowledge none, and say why."""
        self.fault = reason
        if self.state is SlaveState.PREPARING:
            # It will never be prepared: nothing of its log counts, but the master hears why.
            self.state, self.durable = SlaveState.FOLLOWING, 0
        return [self._ack(now)] if self.state is SlaveState.FOLLOWING else []

    def tick(self, now: float) -> list[SlaveAction]:
        """A heartbeat where one is due; the end of a stream whose master is silent."""
        if self.state is SlaveState.CLOSED:
            return []
        silent = now - self.heard_at
        if silent * 1000 > self._config.dead_after_ms:
            return self._disconnect(f"no frame received from the master for {silent:.1f} s")
        if self.answer is None or (now - self.sent_at) * 1000 < self._config.heartbeat_ms:
            return []
        return [self._ack(now)]

    def stand_still(self, now: float) -> None:
        """Nothing is read on purpose, so the master's silence is this slave's own."""
        self.heard_at = now

    def _answered(self, answer: Answer) -> list[SlaveAction]:
        if self.state is not SlaveState.GREETING:
            raise ProtocolError("a second answer on the same stream")
        check_answer(answer, self.me)
        self.answer = answer
        self.expected = answer.offset
        self.master_end = answer.max_offset
        if answer.action is HelloAction.RESYNC:
            self.state = SlaveState.CLOSED
            return [
                SetAside(answer.offset, answer.reason),
                Disconnect(f"the log starts over at {answer.offset}: {answer.reason}"),
            ]
        self.state = SlaveState.PREPARING
        actions: list[SlaveAction] = []
        if answer.proof_start < answer.offset:
            actions.append(CheckProof(answer.proof_start, answer.offset, answer.proof_crc))
        master = Member(answer.master_id, answer.master_incarnation)
        self._known = frozenset({*answer.known_nodes, answer.master_id})
        actions.append(AcceptEpoch(answer.epoch, master, self._known))
        if self.me.empty:
            actions.append(BeginAt(answer.offset, answer.file_size))
            self._last_epoch = None
        if answer.action is HelloAction.TRUNCATE:
            actions.append(Truncate(answer.offset))
        if self.hello.doubted_offset == answer.offset < answer.damaged_until:
            actions.append(TakeDamage(answer.offset, answer.damaged_until))
        if self.hello.checksums:
            actions.append(AdoptEpochs(answer.epochs, answer.offset))
        self._last_epoch = self._entry_below(answer)
        self._prologue_due = answer.prologue
        return actions if answer.prologue else [*actions, Prepared()]

    def _entry_below(self, answer: Answer) -> EpochEntry | None:
        """The epoch of the last byte that stays."""
        entries = answer.epochs if self.hello.checksums else self.hello.epochs
        below = [entry for entry in entries if entry.start_offset < answer.offset]
        return below[-1] if below and not self.me.empty else None

    def _chunk(self, chunk: Chunk) -> list[SlaveAction]:
        if self.answer is None or chunk.master_epoch != self.answer.epoch:
            raise ProtocolError(
                f"a chunk of epoch {chunk.master_epoch} came on a stream of another epoch"
            )
        if self._prologue_due:
            raise ProtocolError("a chunk came before the prologue")
        if chunk.offset != self.expected:
            raise ProtocolError(
                f"a chunk at {chunk.offset} came, but this log ends at {self.expected}"
            )
        actions: list[SlaveAction] = []
        if self.fault:
            return actions
        if len(chunk.data):
            actions.append(Append(chunk.offset, chunk.data, self._new_epoch(chunk), chunk.crc))
            self.expected += len(chunk.data)
        if (chunk.confirm, chunk.max_offset) != (self.confirm, self.master_end):
            self.confirm, self.master_end = chunk.confirm, chunk.max_offset
            actions.append(Confirm(chunk.confirm, chunk.max_offset))
        return actions

    def _answer_round(self, chunk: Chunk, now: float) -> list[SlaveAction]:
        """A master that asks whether it still leads hears of it before these bytes are stored."""
        if chunk.round <= self.round:
            return []
        self.round = chunk.round
        return [self._ack(now)] if self.state is SlaveState.FOLLOWING else []

    def _new_epoch(self, chunk: Chunk) -> EpochEntry | None:
        """The entry that begins with this chunk, None if its epoch continues."""
        entry = EpochEntry(chunk.epoch, chunk.epoch_start)
        last = self._last_epoch
        if last == entry:
            return None
        if chunk.epoch > chunk.master_epoch or chunk.epoch_start > chunk.offset:
            raise ProtocolError(f"a chunk at {chunk.offset} has the invalid epoch {entry}")
        if last is not None and (
            entry.epoch <= last.epoch or entry.start_offset <= last.start_offset
        ):
            raise ProtocolError(
                f"epoch {entry} came after {last}: the master's epochs must not decrease"
            )
        self._last_epoch = entry
        return entry

    def _in_sync_nodes(self, nodes: Sequence[common_pb2.NodeStatus]) -> list[SlaveAction]:
        """Who has come into the set since the answer; no more than a node remembers."""
        node_ids = frozenset(node.node_id for node in nodes if node.in_sync) | self._known
        following = self.state is SlaveState.FOLLOWING and not self.fault
        if not following or node_ids == self._known or len(node_ids) > MAX_KNOWN_NODES:
            return []
        self._known = node_ids
        return [KnowNodes(node_ids)]

    def table_replaced(self, kind: str, version: int, now: float) -> list[SlaveAction]:
        """The store has taken this table: tell the master, who may wait for it."""
        self.tables[kind] = version
        return [self._ack(now)] if self.state is SlaveState.FOLLOWING else []

    def _piece(self, piece: Piece) -> list[SlaveAction]:
        table = self._assembly.add(piece)
        if table is None or self.fault:
            return []
        if piece.kind == PROLOGUE:
            if not self._prologue_due:
                raise ProtocolError("a prologue came that was not announced")
            self._prologue_due = False
            return [TakePrologue(table), Prepared()]
        return [ReplaceTable(Metadata(piece.kind, table, piece.version))]

    def _ack(self, now: float) -> Send:
        self.sent_at = now
        epoch = self.answer.epoch if self.answer is not None else 0
        return Send(
            Ack(
                epoch=epoch,
                incarnation=self.hello.incarnation,
                durable=self.durable,
                received=self.expected,
                reput=self.reput,
                state=PREPARING if self.state is SlaveState.PREPARING else self.fault,
                tables=tuple(self.tables.items()),
                round=self.round,
            )
        )

    def _disconnect(
        self, reason: str, *, refused: bool = False, retry: bool = True
    ) -> list[SlaveAction]:
        self.state = SlaveState.CLOSED
        return [Disconnect(reason, refused, retry)]
