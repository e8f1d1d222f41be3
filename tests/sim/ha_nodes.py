"""What a simulated cluster is made of: nodes that crash, and the two roles that they play.

SimNode   a disk (FakeDisk) and, while it is up, a store with a master's group or a slave's
          session on it
"""

from collections import deque
from dataclasses import dataclass, field

from fakes.fake_store import FakeDisk, FakeStore
from fakes.stream import FakeStream
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.session import MasterSession
from tandemlog_server.ha.master.term import Idleness
from tandemlog_server.ha.protocol.frames import Hello
from tandemlog_server.ha.slave.session import SlaveSession, StoreAction
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.state import InSyncRecord

NODES = ("a", "b", "c")


class ViolationError(AssertionError):
    """A promise of the protocol is broken."""


class CrashError(BaseException):
    """The process dies inside a call of the store: no code of it can catch that."""


@dataclass
class Comparison:
    """A hello whose checksums the master still compares."""

    hello: Hello
    done_at: float
    shown_at: float


@dataclass
class MasterSide:
    """A master's term."""

    group: MasterGroup
    streams: list[tuple[MasterSession, FakeStream]] = field(default_factory=list)
    persisting: InSyncRecord | None = None
    comparing: dict[MasterSession, Comparison] = field(default_factory=dict)
    written: InSyncRecord | None = None
    persist_at: float = 0.0
    idleness: Idleness = field(default_factory=Idleness)


@dataclass
class SlaveSide:
    """A slave's process."""

    stored: SlaveStore
    session: SlaveSession | None = None
    stream: FakeStream | None = None
    work: deque[StoreAction] = field(default_factory=deque)
    distrust: bool = False
    unsettled: bool = False
    retry_at: float = 0.0
    busy_until: float = 0.0
    refused: str = ""
    broken: str = ""


@dataclass
class SimNode:
    """One node; `store` is None while it is down."""

    name: str
    disk: FakeDisk
    store: FakeStore | None = None
    master: MasterSide | None = None
    slave: SlaveSide | None = None
    lives: int = 0
    crash_in: int = -1
    lowest_confirm: int = 0

    def before(self, call: str) -> None:
        if self.crash_in == 0:
            self.crash_in = -1
            raise CrashError(call)
        if self.crash_in > 0:
            self.crash_in -= 1


@dataclass(frozen=True)
class Put:
    """A record that a client waits for."""

    start: int
    end: int
    data: bytes


def piece(disk: FakeDisk, low: int, high: int) -> bytes:
    return bytes(disk.data[low - disk.start : high - disk.start])


def holds(disk: FakeDisk, put: Put) -> bool:
    return piece(disk, put.start, put.end) == put.data if put.start >= disk.start else False
