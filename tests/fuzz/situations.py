"""A master and slaves in the situations that a handshake knows, on disks in memory.

    empty       the slave has nothing                              CONTINUE at the begin
    behind      a prefix of the master's log                       CONTINUE at its end
    ahead       the same, and records that the master never had    TRUNCATE
    checksums   a prefix, and no epoch table                       CONTINUE, by checksums

Each is played once by the rules, and its frames are kept: they are what is mutated. A slave's disk
is restored from a picture of its files for every trial.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog.v1 import common_pb2, replication_pb2
from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.session import (
    MasterAction,
    SendAnswer,
    SendChunk,
    SendPrologue,
    SendRefusal,
)
from tandemlog_server.ha.master.term import Term, begin_term, own_position
from tandemlog_server.ha.protocol.frames import (
    Hello,
    MemberList,
    decode_master_frame,
    encode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.handshake import SlaveView, proven_prefix
from tandemlog_server.ha.protocol.log_crc import log_crc
from tandemlog_server.ha.protocol.prologue import prologue_frames
from tandemlog_server.ha.slave.session import (
    Disconnect,
    Prepared,
    SeeMembers,
    Send,
    SlaveAction,
    SlaveSession,
    StoreAction,
)
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.state import HaState, InSyncRecord, Member
from tandemlog_server.storage.config import ConfirmSource, FlushMode, StoreConfig

NOW = 100.0
SLAVE_CONFIG = HaConfig(
    "sim", "s", role=Role.SLAVE, master_endpoint="m:1", proof_bytes=64, checksum_block_bytes=512
)
MASTER_CONFIG = HaConfig(
    "sim",
    "m",
    endpoint="m:1",
    mode=Replication.SYNC,
    chunk_bytes=1_500,
    proof_bytes=64,
)
STORE_CONFIG: StoreConfig = replace(
    CONFIG, flush=FlushMode.SYNC, confirm=ConfirmSource.REPLICATION, commit_log_file_size=4096
)
SITUATIONS = ("empty", "behind", "ahead", "checksums")

Picture = dict[Path, bytes]


@dataclass
class Slave:
    """A slave's process: its store, what replication remembers, and what the rules say to do."""

    bench: Bench
    state: HaState
    stored: SlaveStore = field(init=False)
    session: SlaveSession = field(init=False)

    def __post_init__(self) -> None:
        self.stored = SlaveStore(
            self.bench.store, self.state, self._save, lambda: "fresh", SLAVE_CONFIG,
            self.bench.clock,
        )  # fmt: skip
        hello, view = self.stored.greeting(Hello("sim", "s", ""), distrust=False)
        self.session = SlaveSession(hello, view, SLAVE_CONFIG, NOW)
        self.session.start(NOW)

    def _save(self, state: HaState) -> None:
        self.state = state

    def obey(self, actions: list[SlaveAction]) -> list[bytes]:
        """Execute the actions as a stream does; what is to be sent. Raises what the store does."""
        sent = []
        work: list[StoreAction] = []
        for action in actions:
            if isinstance(action, Send):
                sent.append(encode_slave_frame(action.frame))
            elif not isinstance(action, Disconnect | SeeMembers):
                work.append(action)
        if work:
            prepared = self.stored.run(work)
            outcome = self.stored.flush()
            call = self.session.prepared if prepared else self.session.stored
            sent += self.obey(call(outcome.durable, outcome.reput, NOW))
        return sent


@dataclass(frozen=True)
class Situation:
    """A slave's disk before and what it says of itself; the frames of a stream that went as it
    should, and what the slave then did to its store."""

    picture: Picture
    state: HaState
    hello: Hello
    view: SlaveView
    to_master: tuple[bytes, ...]
    to_slave: tuple[bytes, ...]
    actions: tuple[StoreAction, ...]


class Master:
    """One master's log; a group of its own for each trial."""

    def __init__(self) -> None:
        self.bench = Bench(STORE_CONFIG)
        # a master that knows another node: whoever is not that one is a stranger
        others = InSyncRecord(0, 0, frozenset({Member("o", "oi")}))
        self.term: Term = self._lead(HaState("sim", "m", "mi", record=others))
        self._put(20)
        self.term = self._lead(self.term.state)
        self._put(20)

    def group(self) -> MasterGroup:
        log = self.bench.store.log
        view = replace(
            self.term.view,
            epochs=self.bench.store.epochs.table,
            end_offset=log.committed.value,
        )
        own = own_position(self.bench.store)
        return MasterGroup(MASTER_CONFIG, self.term.me, view, self.term.record, own, NOW)

    def frames(self, group: MasterGroup, actions: list[MasterAction]) -> list[bytes]:
        """What the actions put on the wire. Raises StoreError and HaError."""
        store, sent = self.bench.store, []
        for action in actions:
            if isinstance(action, SendAnswer):
                answer = action.answer
                crc = log_crc(store, answer.proof_start, answer.offset)
                sent.append(encode_master_frame(replace(answer, proof_crc=crc)))
            elif isinstance(action, SendPrologue):
                sent += prologue_frames(store, action.offset)
            elif isinstance(action, SendChunk):
                data = store.log.read(action.offset, action.length) if action.length else b""
                sent.append(encode_master_frame(action.frame(data, 1)))
            elif isinstance(action, SendRefusal):
                sent.append(encode_master_frame(action.refusal))
        return sent

    def compared(self, hello: Hello, group: MasterGroup) -> Hello:
        """With how far its checksums are equal, where it has some."""
        if not hello.checksums:
            return hello
        store = self.bench.store
        crc: Callable[[int, int], int] = lambda start, end: log_crc(store, start, end)  # noqa: E731
        return replace(hello, proven=proven_prefix(hello.checksums, group.view, crc))

    def log(self, end: int) -> bytes:
        data, log = b"", self.bench.store.log
        while len(data) < end:
            data += bytes(log.read(len(data), end - len(data)))
        return data

    def _lead(self, state: HaState) -> Term:
        states: list[HaState] = []
        return begin_term(self.bench.store, state, states.append, MASTER_CONFIG)

    def _put(self, count: int) -> None:
        for number in range(count):
            puts = [Put("T", number % 4, b"%d" % number * 20) for _ in range(2)]
            self.bench.store.put(batch_of(puts))
        self.bench.store.flush()
        self.bench.store.advance_confirmed(self.bench.store.log.flushed.value)


@cache
def the_master() -> Master:
    return Master()


@cache
def situation(name: str) -> Situation:
    """The disk and the conversation of one of SITUATIONS."""
    bench, state = _slave_disk(name)
    bench.store.close()
    picture = picture_of(bench.files)
    slave = opened(picture, state)
    hello, view = slave.session.hello, slave.session.me
    to_slave, to_master = _play(slave)
    actions = store_actions(SlaveSession(hello, view, SLAVE_CONFIG, NOW), to_slave)
    return Situation(picture, state, hello, view, tuple(to_master), tuple(to_slave), tuple(actions))


def store_actions(session: SlaveSession, frames: Sequence[bytes]) -> list[StoreAction]:
    """What a slave would do to its store; up to the first frame that cannot be read. Raises
    nothing that is typed."""
    found: list[StoreAction] = []
    for data in frames:
        try:
            actions = session.receive(decode_master_frame(data), NOW)
        except ProtocolError:
            break
        done = [each for each in actions if not isinstance(each, Send | Disconnect | SeeMembers)]
        if any(isinstance(each, Prepared) for each in done):
            session.prepared(session.hello.max_offset, 0, NOW)
        found += done
    return found


def opened(picture: Picture, state: HaState) -> Slave:
    """A slave's process on a copy of the disk."""
    files = MemoryFiles()
    restore(files, picture)
    bench = Bench(STORE_CONFIG, files)
    bench.store.become_slave()
    return Slave(bench, state)


def picture_of(files: MemoryFiles) -> Picture:
    """Every file and its bytes; an empty directory is None's work and left out."""
    found: Picture = {}
    todo = [CONFIG.directory]
    while todo:
        path = todo.pop()
        status = files.status(path)
        if status is not None and status.is_directory:
            todo += [path / name for name in files.listdir(path)]
        elif status is not None:
            found[path] = bytes(files.content(path))
    return found


def restore(files: MemoryFiles, picture: Picture) -> None:
    for path, data in picture.items():
        files.make_directory(path.parent)
        handle = files.open(path, create=True)
        files.pwrite(handle, data, 0)
        files.close(handle)


def _slave_disk(name: str) -> tuple[Bench, HaState]:
    bench = Bench(STORE_CONFIG)
    bench.store.become_slave()
    state = HaState("sim", "s", "si")
    if name == "empty":
        return bench, state
    master = the_master()
    end = master.bench.store.epochs.table.entries[-1].start_offset
    data = master.log(end)
    store, size = bench.store, STORE_CONFIG.commit_log_file_size
    if name != "checksums":
        store.epochs.replace(EpochTable((EpochEntry(1, 0),)))
    for start in range(0, end, size):
        store.append_raw(start, data[start : min(start + size, end)])
    store.flush()
    store.advance_confirmed(end // 2)
    store.reput.run_to()
    if name == "ahead":
        store.append_raw(end, data[:300])
        store.flush()
    return bench, replace(state, accepted_epoch=1, followed=Member("m", "mi"))


def _play(slave: Slave) -> tuple[list[bytes], list[bytes]]:
    """The frames to the slave and to the master of a stream by the rules."""
    master = the_master()
    group = master.group()
    session = group.open(NOW)
    row = common_pb2.NodeStatus(node_id="m", role=common_pb2.MASTER, endpoint="m:1")
    to_master = [encode_slave_frame(slave.session.hello)]
    hello = master.compared(slave.session.hello, group)
    to_slave = [encode_master_frame(MemberList((row,)))]
    to_slave += master.frames(group, group.receive(session, hello, NOW))
    to_slave.append(_table("topics", master.bench.store.topics.to_json()))
    to_slave.append(_table("consumer-offsets", b'{"offsetTable":{}}'))
    while chunks := session.pump(NOW):
        to_slave += master.frames(group, chunks)
    to_slave += master.frames(group, session.tick(NOW + 1))
    for data in to_slave:
        to_master += slave.obey(slave.session.receive(decode_master_frame(data), NOW))
    assert slave.bench.store.log.flushed.value == master.bench.store.log.flushed.value
    return to_slave, to_master


def _table(kind: str, json: bytes) -> bytes:
    """A table in one frame."""
    frame = replication_pb2.MasterFrame()
    frame.metadata.kind, frame.metadata.json, frame.metadata.version = kind, json, 1
    if "last" in frame.metadata.DESCRIPTOR.fields_by_name:
        frame.metadata.last = True
    return frame.SerializeToString()
