"""May these two logs be joined, and where? Decided by the master, checked again by the slave.

    slave's log            master's log                       answer
    empty                  any                                CONTINUE at the master's begin
    a prefix of it         longer                             CONTINUE at the slave's end
    equal up to X, then    other bytes or nothing             TRUNCATE to X
    ends below its begin   (retention has dropped the rest)   RESYNC: set aside, start at its begin
    nothing in common      any                                RESYNC, if nothing confirmed is lost

    never: discard a byte that the slave knows to be confirmed and the master should have.
    That would undo an acknowledgement, so it is refused with an error, and an operator decides.

If the cluster elects its master, an operator may have decided already: the record names the newest
*unclean* epoch, which may have begun without confirmed bytes. A slave that followed no later one is
overruled: its log is set aside whole, and the difference is reported.

A master that writes without fsync may itself lack acknowledged bytes after its machine stopped.
Then it does not truncate a member of its last in-sync set that holds more (`unheard`).

Equal history is shown by epoch tables: an (epoch, start offset) pair names one term of one master,
so the logs agree up to the end of the newest pair that both have. Two kinds of table prove nothing.
One is missing: a store copied from RocketMQ. One is wrong: a master that lost its disk counts its
epochs from 1 again. In the first case the slave offers checksums of its whole log, which prove the
equal part. For the second case every reply carries the CRC of the last bytes below its offset; a
slave that has other bytes there asks again with checksums.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.storage.config import LOG_FILE_SIZES

from ..errors import HandshakeRefusedError, ProtocolError
from ..state import Member
from .frames import Answer, Checksum, Hello, HelloAction, Refusal
from .versions import OURS, Build, misfit

FINE_BLOCK_BYTES = 4096
MAX_EPOCH_JUMP = 1 << 20
"""Two nodes of one cluster are never this many terms apart: a restart every minute for two
years."""
GONE = "if its machine is lost, start a new node under its id"
EPOCHS_LOST = (
    "; if the master has lost its epochFileCheckpoint, stop it and copy the slave's to "
    "it: by their epoch tables the two logs have nothing in common"
)

Crc = Callable[[int, int], int]


@dataclass(slots=True)
class MasterView:
    """What the master is and holds; `end_offset` is what it may send.

    Not frozen: the group moves the offsets as the log grows, and counts the rounds (rounds.py); its
    sessions only read them.
    """

    cluster_id: str
    node_id: str
    incarnation: str
    endpoint: str
    epoch: int
    epochs: EpochTable
    min_offset: int
    end_offset: int
    confirm: int
    file_size: int
    proof_bytes: int
    unheard: frozenset[Member] = frozenset()
    known_nodes: frozenset[str] = frozenset()
    elected: bool = False
    unclean_epoch: int = 0
    build: Build = OURS
    round: int = 0


@dataclass(frozen=True, slots=True)
class SlaveView:
    """What the slave is and holds, as it said in its hello, and what it will not go below."""

    min_offset: int
    max_offset: int
    confirm: int
    file_size: int
    accepted_epoch: int
    epochs: tuple[EpochEntry, ...] = ()
    unclean_epoch: int = 0
    build: Build = OURS

    @property
    def overruled(self) -> bool:
        """Whether what this slave knows to be confirmed may have been given up by an operator."""
        return is_overruled(self.accepted_epoch, self.unclean_epoch)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1].epoch if self.epochs else 0

    @property
    def empty(self) -> bool:
        return self.min_offset == self.max_offset


@dataclass(frozen=True, slots=True)
class Verdict:
    """The frame to send; `alarm` where the slave proves that this master lost confirmed bytes;
    `seen_epoch` is an epoch above the master's that the slave has seen, 0 for none; `cut_bytes` how
    many bytes of the slave's log the master does not have, as far as the answer tells."""

    frame: Answer | Refusal
    alarm: str = ""
    seen_epoch: int = 0
    cut_bytes: int = 0


def decide(hello: Hello, view: MasterView) -> Verdict:
    """The master's answer to `hello`. The proof's CRC is left for the caller to fill in."""
    refusal = _identity_refusal(hello, view)
    if refusal is not None:
        return Verdict(refusal)
    other_disk = hello.master_id == view.node_id and hello.master_incarnation != view.incarnation
    if other_disk and not view.elected:  # an election names the disk too
        return _alarm(
            f"slave {hello.node_id} has followed {view.node_id} with another store: the "
            "master's store was lost or replaced, and may lack acknowledged messages. Make a "
            "slave the master, or move the slave's store away",
            view,
        )
    seen = max(hello.accepted_epoch, hello.epochs[-1].epoch if hello.epochs else 0)
    if seen > view.epoch + MAX_EPOCH_JUMP:
        return Verdict(
            Refusal(
                f"slave {hello.node_id} reports epoch {seen}, but this master is in epoch "
                f"{view.epoch}: a cluster never moves by more than {MAX_EPOCH_JUMP} epochs at "
                "once. Look at the slave's replication.json and epochFileCheckpoint",
                retry=False,
                epoch=view.epoch,
            )
        )
    if seen > view.epoch and view.elected:
        reason = f"slave {hello.node_id} has seen epoch {seen}: this master may be deposed"
        return Verdict(Refusal(reason, retry=True, epoch=view.epoch), seen_epoch=seen)
    if seen > view.epoch:
        return _alarm(
            f"slave {hello.node_id} has seen epoch {seen}, but this master is in epoch "
            f"{view.epoch}: the master's store is older than the slave's, or was lost. Restart "
            "the master (it takes a higher epoch) or make the slave the master",
            view,
        )
    if seen == view.epoch and hello.master_id not in ("", view.node_id):
        # the entries of two masters that chose one epoch are equal, their bytes are not
        return _alarm(
            f"slave {hello.node_id} has followed {hello.master_id} in epoch {seen}, which is "
            "also the epoch of this master: two masters have written in one epoch. Restart the "
            "master (it takes a higher epoch) or move the slave's store away",
            view,
        )
    if hello.min_offset == hello.max_offset:
        return _continue(view, view.min_offset, hello, "the slave's log is empty")
    return _place(hello, view, _consistent_point(hello, view))


def check_answer(answer: Answer, me: SlaveView) -> None:
    """The slave's own look at the answer; raises where it must not be followed.

    HandshakeRefusedError: a stale master, another file size, or confirmed bytes would go.
    ProtocolError: an answer that does not fit what the slave said.
    """
    name = answer.action.name.lower()
    if fault := misfit(f"master {answer.master_id}", answer.build, "this slave", me.build):
        raise HandshakeRefusedError(fault, retry=False)
    _check_sense(answer)
    if answer.epoch > max(me.accepted_epoch, me.last_epoch) + MAX_EPOCH_JUMP and me.accepted_epoch:
        raise HandshakeRefusedError(
            f"master {answer.master_id} reports epoch {answer.epoch}, but this slave has "
            f"followed epoch {me.accepted_epoch}: a cluster never moves by more than "
            f"{MAX_EPOCH_JUMP} epochs at once",
            retry=False,
        )
    if answer.epoch < me.accepted_epoch:
        raise HandshakeRefusedError(
            f"master {answer.master_id} is in epoch {answer.epoch}, but this slave has followed "
            f"epoch {me.accepted_epoch}: it is a deposed master, or one that lost its disk",
            retry=True,
        )
    if me.file_size != answer.file_size:
        _check_new_file_size(answer, me)
    if answer.action is HelloAction.RESYNC:
        if me.overruled:
            return
        if me.confirm > answer.offset:
            raise HandshakeRefusedError(
                f"refused to set the log aside: bytes {answer.offset}..{me.confirm} are confirmed "
                f"({answer.reason})",
                retry=False,
            )
        _check_resync(answer, me)
        return
    if me.empty:
        return
    if answer.offset < me.confirm:
        raise HandshakeRefusedError(
            f"refused to {name} at {answer.offset}: everything below {me.confirm} is confirmed "
            f"on this slave ({answer.reason})",
            retry=False,
        )
    below, above = answer.offset < me.min_offset, answer.offset > me.max_offset
    if below or above or (answer.action is HelloAction.CONTINUE and answer.offset != me.max_offset):
        raise ProtocolError(
            f"{name} at {answer.offset} does not fit this log, {me.min_offset}..{me.max_offset}"
        )


def _check_new_file_size(answer: Answer, me: SlaveView) -> None:
    """An empty slave makes its files as long as the master's, which its store must open again."""
    if not me.empty:
        raise HandshakeRefusedError(_file_size_reason(me.file_size, answer.file_size), retry=False)
    if answer.file_size not in LOG_FILE_SIZES:
        raise ProtocolError(
            f"the master's log files have {answer.file_size} bytes, but log files have at least "
            f"{LOG_FILE_SIZES.start} bytes"
        )


def _check_sense(answer: Answer) -> None:
    """Numbers that no master has, whatever this slave holds. Raises ProtocolError."""
    size = answer.file_size
    if not 0 < size < LOG_FILE_SIZES.stop:
        raise ProtocolError(
            f"the master's log files have {size} bytes, which is not a valid size of log files"
        )
    if not answer.min_offset <= answer.max_offset or answer.confirm > answer.max_offset:
        raise ProtocolError(
            f"a log {answer.min_offset}..{answer.max_offset} cannot be confirmed up to "
            f"{answer.confirm}"
        )
    if not answer.min_offset <= answer.offset <= answer.max_offset:
        raise ProtocolError(
            f"{answer.action.name.lower()} at {answer.offset} lies outside the master's log, "
            f"{answer.min_offset}..{answer.max_offset}"
        )
    if answer.epochs and answer.epochs[-1].epoch > answer.epoch:
        raise ProtocolError(
            f"the master is in epoch {answer.epoch}, but its log ends in epoch "
            f"{answer.epochs[-1].epoch}"
        )


def _check_resync(answer: Answer, me: SlaveView) -> None:
    """A log is set aside only for a master that begins behind what it has in common with it. What
    that is, the slave can tell from the epochs that the answer carries."""
    if answer.offset != answer.min_offset:
        raise ProtocolError(
            f"resync at {answer.offset}, but the master's log begins at {answer.min_offset}"
        )
    common = EpochTable(me.epochs).find_consistent_point(
        me.max_offset, EpochTable(answer.epochs), answer.max_offset
    )
    if me.epochs and common is not None and common >= max(answer.offset, me.min_offset):
        raise HandshakeRefusedError(
            "refused to set the log aside: by its epoch table it equals the master's up to "
            f"{common}, and the master's log begins at {answer.offset} ({answer.reason})",
            retry=False,
        )


def is_overruled(accepted_epoch: int, unclean_epoch: int) -> bool:
    """Whether an unclean epoch began after the last one that a node has followed or led."""
    return accepted_epoch < unclean_epoch


def checksum_blocks(start: int, end: int, block: int, crc: Crc) -> tuple[Checksum, ...]:
    """Checksums of the whole log start..end in pieces of `block` bytes, fine ones at the end."""
    return tuple(Checksum(low, high, crc(low, high)) for low, high in _ranges(start, end, block))


def proven_prefix(checksums: Sequence[Checksum], view: MasterView, crc: Crc) -> int | None:
    """Up to where the slave's bytes equal the master's; None if not even one piece does.

    Pieces below the master's begin cannot be compared and are skipped.
    """
    proven: int | None = None
    expected = checksums[0].start if checksums else 0
    for piece in checksums:
        if piece.start != expected or piece.end <= piece.start:
            raise ProtocolError(f"the slave's checksums have a gap or an overlap at {expected}")
        expected = piece.end
        if piece.start < view.min_offset:
            continue
        if piece.end > view.end_offset or crc(piece.start, piece.end) != piece.crc:
            break
        proven = piece.end
    return proven


def _identity_refusal(hello: Hello, view: MasterView) -> Refusal | None:
    if hello.cluster_id != view.cluster_id:
        return Refusal(
            f"this is cluster {view.cluster_id!r}, the slave belongs to {hello.cluster_id!r}",
            retry=False,
            epoch=view.epoch,
        )
    if fault := misfit(f"slave {hello.node_id}", hello.build, f"master {view.node_id}", view.build):
        return Refusal(fault, retry=False, epoch=view.epoch)
    if not hello.node_id or not hello.incarnation:
        return Refusal("a slave must send its node id and incarnation", retry=False)
    if hello.node_id == view.node_id:
        return Refusal(
            f"node id {hello.node_id!r} is the master's own: give every node its own node_id",
            retry=False,
            epoch=view.epoch,
        )
    if hello.min_offset != hello.max_offset and hello.file_size != view.file_size:
        return Refusal(_file_size_reason(hello.file_size, view.file_size), False, view.epoch)
    return None


def _file_size_reason(slave: int, master: int) -> str:
    return (
        f"the slave's commit log files have {slave} bytes, the master's have {master}: move "
        "the slave's store away and let the slave start empty"
    )


def _consistent_point(hello: Hello, view: MasterView) -> int | None:
    if hello.checksums or not hello.epochs:
        return hello.proven
    return EpochTable(hello.epochs).find_consistent_point(
        hello.max_offset, view.epochs, view.end_offset
    )


def _place(hello: Hello, view: MasterView, point: int | None) -> Verdict:
    """The answer to a slave with data whose log equals the master's below `point`."""
    if point is None or point < hello.min_offset:
        if hello.max_offset < view.min_offset:
            return _resync(view, hello, "the slave's log ends before the master's begins")
        return _resync(view, hello, "the slave's log has no common history with the master's")
    if point < view.min_offset and (point == hello.max_offset or point >= hello.confirm_offset):
        return _resync(view, hello, "the slave's log ends before the master's begins")
    if point < hello.confirm_offset:
        if is_overruled(hello.accepted_epoch, view.unclean_epoch):
            return _given_up(hello, view, point)
        return _lost(hello, view, point)
    if point < hello.max_offset and _may_hold_more(hello, view):
        return _withheld(hello, view, point)
    if point == hello.max_offset:
        return _continue(view, point, hello, "")
    reason = f"the logs agree up to {point}, but the slave's log ends at {hello.max_offset}"
    answer = _answer(HelloAction.TRUNCATE, view, point, hello, reason)
    return Verdict(answer, cut_bytes=hello.max_offset - point)


def _resync(view: MasterView, hello: Hello, reason: str) -> Verdict:
    # What lies below the master's begin was dropped by retention, not lost.
    begin = max(view.min_offset, hello.min_offset)
    overruled = is_overruled(hello.accepted_epoch, view.unclean_epoch)
    if hello.confirm_offset > begin:
        return (
            _given_up(hello, view, begin) if overruled else _lost(hello, view, begin, EPOCHS_LOST)
        )
    if overruled:
        answer = _answer(HelloAction.RESYNC, view, view.min_offset, hello, reason)
        return Verdict(answer, cut_bytes=max(0, hello.max_offset - begin))
    if hello.max_offset >= view.min_offset and _may_hold_more(hello, view):
        return _withheld(hello, view, view.min_offset)
    return Verdict(_answer(HelloAction.RESYNC, view, view.min_offset, hello, reason))


def _lost(hello: Hello, view: MasterView, point: int, hint: str = "") -> Verdict:
    return _alarm(
        f"slave {hello.node_id} has confirmed bytes up to {hello.confirm_offset}, but the "
        f"master agrees only up to {point} and its log ends at {view.end_offset}: "
        "acknowledged messages would be lost. Make that slave the master, or move its "
        f"store aside by hand; {GONE}{hint}",
        view,
    )


def _given_up(hello: Hello, view: MasterView, point: int) -> Verdict:
    reason = (
        f"epoch {view.unclean_epoch} began without {hello.confirm_offset - point} confirmed bytes "
        f"of this slave ({point}..{hello.confirm_offset}): they are lost to the cluster, and kept "
        "in the log that is set aside"
    )
    answer = _answer(HelloAction.RESYNC, view, view.min_offset, hello, reason)
    return Verdict(answer, cut_bytes=hello.max_offset - point)


def _may_hold_more(hello: Hello, view: MasterView) -> bool:
    return Member(hello.node_id, hello.incarnation) in view.unheard


def _withheld(hello: Hello, view: MasterView, point: int) -> Verdict:
    return _alarm(
        f"slave {hello.node_id} was in sync and has bytes up to {hello.max_offset}, but "
        f"this master lost everything after {point} when its machine stopped: some of it "
        "may have been acknowledged. Make that slave the master, or move its store aside "
        f"by hand; {GONE}",
        view,
    )


def _alarm(reason: str, view: MasterView) -> Verdict:
    return Verdict(Refusal(reason, retry=False, epoch=view.epoch), alarm=reason)


def _continue(view: MasterView, offset: int, hello: Hello, reason: str) -> Verdict:
    return Verdict(_answer(HelloAction.CONTINUE, view, offset, hello, reason))


def _answer(
    action: HelloAction, view: MasterView, offset: int, hello: Hello, reason: str
) -> Answer:
    proof_start = offset
    if action is not HelloAction.RESYNC and hello.min_offset != hello.max_offset:
        lowest = max(view.min_offset, hello.min_offset)
        proof_start = min(offset, max(offset - view.proof_bytes, lowest))
    return Answer(
        action=action,
        offset=offset,
        reason=reason,
        master_id=view.node_id,
        master_incarnation=view.incarnation,
        master_endpoint=view.endpoint,
        epoch=view.epoch,
        epochs=tuple(view.epochs.entries),
        file_size=view.file_size,
        confirm=view.confirm,
        max_offset=view.end_offset,
        min_offset=view.min_offset,
        proof_start=proof_start,
        known_nodes=tuple(sorted(view.known_nodes)),
        damaged_until=hello.damaged_until,
        prologue=hello.needs_prologue and action is not HelloAction.RESYNC,
        build=view.build,
    )


def _ranges(start: int, end: int, block: int) -> Iterator[tuple[int, int]]:
    """start..end in blocks; the last one in fine pieces, so that little is left unproven."""
    position = start
    while end - position > block:
        yield position, position + block
        position += block
    while position < end:
        high = min(position + FINE_BLOCK_BYTES, end)
        yield position, high
        position = high
