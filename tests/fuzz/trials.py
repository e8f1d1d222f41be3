"""One stream with a frame that is wrong, played to its end on either side, and judged.

What a side raises it raises typed, as the streams around the sessions expect it; what is kept
(epochs, the in-sync set, confirmed bytes, what the disk holds) stays what it must be.
"""

from contextlib import suppress
from random import Random

from fuzz.mutate import Mutator
from fuzz.situations import (
    NOW,
    SLAVE_CONFIG,
    Master,
    opened,
    picture_of,
    situation,
    store_actions,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochTable
from tandemlog.v1 import replication_pb2
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.node_status import slave_rows
from tandemlog_server.ha.master.session import MasterSession
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Answer,
    Hello,
    MemberList,
    decode_master_frame,
    decode_slave_frame,
    encode_master_frame,
)
from tandemlog_server.ha.slave.session import SlaveSession
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.log.log_scanner import LogScanner

TYPED = (HaError, StoreError, FormatError, OSError)
MOST_MEMBER_BYTES = 8_192
NAMES = (
    b"s", b"m", b"sim", b"si", b"mi", b"preparing", b"prologue", b"topics", b"groups",
    b"consumer-offsets",
)  # fmt: skip

_mutator = Mutator(NAMES)


def mutated(random: Random, frames: tuple[bytes, ...], kind: type) -> list[bytes]:
    """The conversation with something wrong: in a frame, or in their order."""
    changed = list(frames)
    at = random.randrange(len(changed))
    what = random.random()
    if what < 0.85:
        changed[at] = _mutator.message(random, changed[at], kind.DESCRIPTOR)  # type: ignore[attr-defined]
    elif what < 0.9:
        del changed[at]
    elif what < 0.95:
        changed.insert(at, changed[random.randrange(len(changed))])
    else:
        random.shuffle(changed)
    return changed


def to_slave(random: Random, name: str) -> list[bytes]:
    return mutated(random, situation(name).to_slave, replication_pb2.MasterFrame)


def to_master(random: Random, name: str) -> list[bytes]:
    return mutated(random, situation(name).to_master, replication_pb2.SlaveFrame)


def slave_hears(name: str, frames: list[bytes]) -> str:
    """What goes wrong on a slave that hears these frames; empty where nothing does."""
    if _ordinary(name, frames):
        return ""
    before = situation(name)
    slave = opened(before.picture, before.state)
    store = slave.bench.store
    confirmed = store.confirmed.value
    held = _log_of(slave.bench.store, confirmed)
    try:
        for data in frames:
            slave.obey(slave.session.receive(decode_master_frame(data), NOW))
        slave.obey(slave.session.tick(NOW + 1))
    except TYPED:
        pass
    except Exception as problem:
        return f"a slave ends with {problem!r}"
    fault = _slave_fault(slave.stored.state.accepted_epoch, store.epochs.table)
    if fault:
        return fault
    if store.confirmed.value < confirmed and not _set_aside(slave.bench.files):
        return f"the confirm offset went back from {confirmed} to {store.confirmed.value}"
    if store.log.min_offset == 0 and _log_of(store, confirmed) != held:
        return "confirmed bytes have changed"
    if store.log.min_offset and not _set_aside(slave.bench.files) and held:
        return "confirmed bytes are gone"
    wrote = store.log.wrote.value
    try:
        slave.bench.reopen()
    except Exception as problem:
        return f"the store does not open again: {problem!r}"
    return _stored_fault(slave.bench.store.log, wrote, frames)


def _stored_fault(log: CommitLog, wrote: int, frames: list[bytes]) -> str:
    """A slave's log holds records to its end, unless the master said that it has damage there."""
    scanner = LogScanner(log.mapped, log.min_offset, stop=wrote).run()
    if scanner.end >= wrote or _announces_damage(frames):
        return ""
    return f"stored up to {wrote}, from {scanner.end} on it is no record: {scanner.reason}"


def _announces_damage(frames: list[bytes]) -> bool:
    for data in frames:
        with suppress(*TYPED):
            frame = decode_master_frame(data)
            if isinstance(frame, Answer) and frame.damaged_until > frame.offset:
                return True
    return False


def _ordinary(name: str, frames: list[bytes]) -> bool:
    """Whether these frames make the slave do nothing but a part of what the right ones do: then
    its store need not be asked."""
    known = situation(name)
    session = SlaveSession(known.hello, known.view, SLAVE_CONFIG, NOW)
    try:
        actions = store_actions(session, frames)
    except Exception:
        return False  # played with a store, it is judged
    return tuple(actions) == known.actions[: len(actions)]


def master_hears(master: Master, frames: list[bytes]) -> str:
    """What goes wrong on a master that hears these frames from a stranger."""
    group = master.group()
    session = group.open(NOW)
    epoch, record, end = group.view.epoch, group.set.record, group.view.end_offset
    try:
        for data in frames:
            _receive(master, group, session, data)
            master.frames(group, session.pump(NOW))
        group.tick(NOW + 1)
        group.admission(NOW + 1)
    except TYPED:
        pass
    except Exception as problem:
        return f"a master ends with {problem!r}"
    if (group.view.epoch, group.set.record) != (epoch, record):
        return "a stranger changed the epoch or the recorded set"
    if group.seen_epoch != epoch:
        return f"a stranger's epoch {group.seen_epoch} is remembered, the own one is {epoch}"
    if group.alarms:
        return f"a stranger raised an alarm: {group.alarms}"
    if group.tracker.value > end:
        return f"confirmed up to {group.tracker.value}, the log ends at {end}"
    return _kept_fault(group, session)


def _receive(master: Master, group: MasterGroup, session: MasterSession, data: bytes) -> None:
    frame = decode_slave_frame(data)
    if isinstance(frame, Hello):
        frame = master.compared(frame, group)
    master.frames(group, group.receive(session, frame, NOW))


def _kept_fault(group: MasterGroup, session: MasterSession) -> str:
    for match in group.tracker.matches.values():
        if match.durable is not None and not 0 <= match.durable <= match.sent:
            return f"an acknowledgement of {match.durable} counts, {match.sent} was sent"
    if isinstance(session.ack, Ack) and session.streaming and session.ack.durable < 0:
        return f"an acknowledgement of {session.ack.durable} counts"
    try:
        rows = slave_rows(group, NOW)
        size = len(encode_master_frame(MemberList(tuple(rows))))
    except Exception as problem:
        return f"the list of members cannot be made: {problem!r}"
    if size > MOST_MEMBER_BYTES:
        return f"one stranger makes a list of members of {size} bytes for everybody"
    return ""


def _slave_fault(accepted: int, table: EpochTable) -> str:
    state = situation("empty").state
    following = next_epoch(table, type(state)("sim", SLAVE_CONFIG.node_id, "x", accepted))
    if not 0 < following < 1 << 31:
        return f"after epoch {accepted} this slave can never lead: its epoch would be {following}"
    return ""


def _log_of(store: object, end: int) -> bytes:
    log = store.log  # type: ignore[attr-defined]
    data, position = b"", log.min_offset
    while position < min(end, log.committed.value):
        piece = bytes(log.read(position, end - position))
        if not piece:
            break
        data += piece
        position += len(piece)
    return data


def _set_aside(files: object) -> bool:
    return any("resync-" in str(path) for path in picture_of(files))  # type: ignore[arg-type]
