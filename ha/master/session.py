"""One slave as the master sees it: a machine without I/O, clock or loop.

    WAITING ──hello, joined──▶ STREAMING ──dead, refused, replaced──▶ CLOSED
       └─────hello, refused or resync────────────────────────────────────┘

The log is the replication buffer, so a session is a few positions:

    acked (durable on the slave)  <=  sent  <=  end of what may be sent
    └──────── at most window_bytes ───┘       (a slave that has got all of it and still waits for
                                               the end of a record gets one chunk more)

A chunk never crosses an epoch, so the slave learns where each epoch began before it stores a byte
of it. Nor does it cross a log file, so it is one slice on the master and one write on the slave.
The size of chunks adapts to the link: master and slave hear of each other once a chunk, so a chunk
that takes longer than a heartbeat halves the size of the next, and a quick one doubles it, up to
`chunk_bytes`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tandemlog.format.constants import Buffer
from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.epochs import EpochEntry

from ..config import HaConfig
from ..protocol.chunk_codec import Chunk
from ..protocol.frames import PREPARING, Ack, Answer, Hello, HelloAction, Refusal, SlaveFrame
from ..protocol.handshake import MasterView, decide
from ..protocol.versions import ROUNDS

LEAST_CHUNK_BYTES = 32 << 10
"""The first one too: a quick link has the largest seven chunks later, a slow one would break at a
large first one again and again."""


class SessionState(Enum):
    """WAITING for the hello, then STREAMING; a CLOSED session never opens again."""

    WAITING = "waiting"
    STREAMING = "streaming"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """Send `answer` with the CRC of its proof range filled in."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class SendPrologue:
    """Send what came before the log's begin at `offset` (prologue.py)."""

    offset: int


@dataclass(frozen=True, slots=True)
class SendRefusal:
    """Send the refusal; the session is closed."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Read `length` log bytes at `offset` and send them; 0 bytes are a heartbeat."""

    offset: int
    length: int
    epoch: int
    epoch_start: int
    confirm: int
    max_offset: int
    master_epoch: int
    round: int = 0

    def frame(self, data: Buffer, sent_at_ms: int) -> Chunk:
        return Chunk(
            offset=self.offset,
            epoch=self.epoch,
            epoch_start=self.epoch_start,
            confirm=self.confirm,
            max_offset=self.max_offset,
            sent_at_ms=sent_at_ms,
            master_epoch=self.master_epoch,
            data=data,
            crc=crc32(data),
            round=self.round,
        )


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing more is sent; `reason` is for the log, the slave sees the stream end."""

    reason: str


MasterAction: TypeAlias = SendAnswer | SendPrologue | SendRefusal | SendChunk | Close


class MasterSession:
    """See the module. `view` belongs to the group, which moves its offsets."""

    def __init__(self, view: MasterView, config: HaConfig, now: float) -> None:
        self.view = view
        self.state = SessionState.WAITING
        self.hello: Hello | None = None
        self.ack: Ack | None = None
        self.sent = 0
        self.acked = 0
        self.heard_at = now
        self.sent_at = now
        self.confirm_sent = -1
        self.round_sent = 0
        self.closed_reason = ""
        self.alarm = ""
        self.seen_epoch = 0
        self.cut_bytes = 0
        self._config = config
        self._chunk_limit = min(LEAST_CHUNK_BYTES, config.chunk_bytes)
        self._last_chunk: tuple[float, int] | None = None
        self._beyond = False

    @property
    def streaming(self) -> bool:
        return self.state is SessionState.STREAMING

    @property
    def answers_rounds(self) -> bool:
        """Whether this slave says at once that it follows (rounds.py)."""
        return self.streaming and self.hello is not None and ROUNDS in self.hello.build.features

    def attach(self, hello: Hello, start: int) -> None:
        """A slave of another protocol, which has no handshake, gets the log from `start` on."""
        self.hello = hello
        self.state = SessionState.STREAMING
        self.sent = self.acked = start

    def receive(self, frame: SlaveFrame, now: float) -> list[MasterAction]:
        """Take a frame of the slave in; returns what to send."""
        if self.state is SessionState.CLOSED:
            return []
        self.heard_at = now
        if isinstance(frame, Hello):
            if self.state is not SessionState.WAITING:
                return self.refuse("a second hello on the same stream", retry=True)
            return self._join(frame, now)
        if not self.streaming:
            return self.refuse("an acknowledgement came before the hello", retry=True)
        if frame.state == PREPARING:
            return []
        self.ack = frame
        self._beyond = self.acked == frame.durable < frame.received == self.sent
        if frame.durable <= self.sent:
            self.acked = max(self.acked, frame.durable)
        return []

    def tick(self, now: float) -> list[MasterAction]:
        """A heartbeat where one is due; the end of a session whose slave is silent."""
        if self.state is SessionState.CLOSED:
            return []
        silent = now - self.heard_at
        if silent * 1000 > self._config.dead_after_ms:
            return self.close(f"no frame received for {silent:.1f} s")
        if self.streaming and (now - self.sent_at) * 1000 >= self._config.heartbeat_ms:
            return [self._heartbeat(now)]
        return []

    def pump(self, now: float) -> list[MasterAction]:
        """The next chunk inside the window, or a changed confirm offset; empty: nothing to send."""
        if not self.streaming:
            return []
        if self.sent < self.view.min_offset:
            return self.close(
                f"retention has deleted the log below {self.view.min_offset}, but the slave is at "
                f"{self.sent}: it has to start over"
            )
        self._follow_link(now)
        length = self._sendable()
        if length > 0:
            entry = self._entry(self.sent)
            action = self._chunk(length, entry, now)
            self.sent += length
            self._last_chunk = now, length
            return [action]
        if self.confirm_sent < self.view.confirm and self.confirm_delay(now) <= 0:
            return [self._heartbeat(now)]
        if self.answers_rounds and self.round_sent < self.view.round:
            return [self._heartbeat(now)]
        return []

    def confirm_delay(self, now: float) -> float:
        """Seconds until a changed confirm offset may travel alone; log bytes take it along."""
        return self.sent_at + self._config.confirm_interval_ms / 1000 - now

    def close(self, reason: str) -> list[MasterAction]:
        """End the session; of several reasons the first one stays."""
        self.state = SessionState.CLOSED
        self.closed_reason = self.closed_reason or reason
        return [Close(reason)]

    def refuse(self, reason: str, *, retry: bool) -> list[MasterAction]:
        """End the session and tell the slave why; `retry` False: an operator has to act."""
        self.close(reason)
        return [SendRefusal(Refusal(reason, retry, self.view.epoch))]

    def _join(self, hello: Hello, now: float) -> list[MasterAction]:
        self.hello = hello
        verdict = decide(hello, self.view)
        self.alarm = verdict.alarm
        self.seen_epoch = verdict.seen_epoch
        self.cut_bytes = verdict.cut_bytes
        if isinstance(verdict.frame, Refusal):
            self.close(verdict.frame.reason)
            return [SendRefusal(verdict.frame)]
        answer = verdict.frame
        self.sent_at = now
        if answer.action is HelloAction.RESYNC:
            # The slave's disk starts a new history: it comes back with a new incarnation.
            self.close(answer.reason)
            return [SendAnswer(answer), Close(answer.reason)]
        self.state = SessionState.STREAMING
        self.sent = self.acked = answer.offset
        prologue = [SendPrologue(answer.min_offset)] if answer.prologue else []
        return [SendAnswer(answer), *prologue]

    def _follow_link(self, now: float) -> None:
        """Fit the next chunk to the link. The caller makes a chunk while the one before is in
        flight, and comes back once that has left: the time is the older one's, the size the
        newer's, which is at most twice as large."""
        last, self._last_chunk = self._last_chunk, None
        if last is None:
            return
        took_ms, full = (now - last[0]) * 1000, last[1] >= self._chunk_limit
        if took_ms > self._config.heartbeat_ms:
            least = min(LEAST_CHUNK_BYTES, self._config.chunk_bytes)
            self._chunk_limit = max(self._chunk_limit // 2, least)
        elif full and took_ms < self._config.heartbeat_ms / 4:
            self._chunk_limit = min(self._chunk_limit * 2, self._config.chunk_bytes)

    def _sendable(self) -> int:
        available = self.view.end_offset - self.sent
        room = self._config.window_bytes - (self.sent - self.acked)
        wanted = min(self._chunk_limit, available)
        if wanted <= 0 or (room < wanted and not self._beyond):
            return 0
        self._beyond = False
        file_left = self.view.file_size - self.sent % self.view.file_size
        epoch_end = self.view.epochs.end_of(self.sent)
        epoch_left = available if epoch_end is None else epoch_end - self.sent
        return min(wanted, file_left, epoch_left)

    def _entry(self, offset: int) -> EpochEntry:
        """The epoch of a byte; bytes older than the table are epoch 0."""
        entry = self.view.epochs.entry_at(offset)
        return EpochEntry(0, self.view.min_offset) if entry is None else entry

    def _heartbeat(self, now: float) -> SendChunk:
        return self._chunk(0, self._entry(max(self.sent - 1, self.view.min_offset)), now)

    def _chunk(self, length: int, entry: EpochEntry, now: float) -> SendChunk:
        self.sent_at = now
        self.confirm_sent = self.view.confirm
        asked = self.answers_rounds and self.round_sent < self.view.round
        if asked:
            self.round_sent = self.view.round
        return SendChunk(
            offset=self.sent,
            length=length,
            epoch=entry.epoch,
            epoch_start=entry.start_offset,
            confirm=self.view.confirm,
            max_offset=self.view.end_offset,
            master_epoch=self.view.epoch,
            round=self.view.round if asked else 0,
        )
