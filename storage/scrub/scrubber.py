"""One step after the other through the log: check a block, compare it, mend it.

    plan ─▶ block ─▶ own records right? ─▶ the others' checksums ─▶ verdict
                                                                     ├ Fine: the next one
                                                                     ├ Mend: fetch, check, replace
                                                                     └ Doubt, Lost: kept open, named

`step` does one block and returns how long to rest, so the thread around it decides about time and a
test about everything. What other nodes say is asked through `Peer`; one that does not answer has no
copy, for now. The archive is such a peer, asked where the nodes alone would leave a block lost or
in doubt: it is far, and what it sends may cost money.

A block whose records are right and whose copies say otherwise is kept from readers until it is
mended: its bytes are wrong, and nothing in them shows it. Damage that its records show needs no
such bar, since no reader gets a record that is wrong by its own CRC. Two copies that differ without
a third are served as before: which one is right is not known.

Before a fetched block is used it has to have the checksum that was voted for, and its records have
to be right. A page elsewhere in the file that cannot be read stops the mending of that file until
that page has its patch too: then both are written at once.

A place that a reader could not read does not wait for its turn: the block that holds it is next.
Nor does damage that was met by dispatch, or by a group that waits for the record.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.small_files import read_small, write_small
from ..errors import FlushFailedError, OffsetOutOfRangeError, StoreError, UnreadableError
from ..token_bucket import TokenBucket
from .block_answers import ABSENT, BlockAnswer, BlockQuestion
from .block_check import BLOCK, CheckedBlock, check_given, check_next, checksum_of
from .index_scrub import IndexScrub
from .log_blocks import LogBlocks
from .log_mending import Patch
from .scrub_plan import MAX_OPEN, RETRY_MS, ScrubPlan
from .scrubbed_store import ScrubbedStore, scrub_limit
from .verdicts import Copy, CopyState, Doubt, Fine, Lost, Mend, Verdict, judge

logger = logging.getLogger(__name__)

IDLE_S: Final = 1.0
"""Between two looks for something that is due."""
SAVE_S: Final = 5.0
RECORD_COST: Final = 1_024
"""Bytes for which a record counts beside its own: checking it takes as long as reading so many."""
BYTES_PER_WORK_S: Final = 200_000_000
"""Bytes for which a second of processor time counts: a block whose records lie in thousands of
queues, each of which has to be opened, takes ten times as long as one with few."""
MENDING_RATE: Final = 8
"""A file is written again at so many times the rate of the scrub: its damage is known."""
_END_SIZE: Final = 8


class PeerError(Exception):
    """A node that does not answer, or not with what it promised."""


class Peer(Protocol):
    """Another node of the cluster. Both raise PeerError."""

    @property
    def name(self) -> str: ...

    def ask(self, question: BlockQuestion) -> BlockAnswer: ...

    def fetch(self, start: int, end: int) -> bytes:
        """Exactly these bytes of its log."""
        ...


@dataclass(frozen=True, slots=True)
class ScrubCounts:
    """Since the process began. `mended` are blocks, `compared` those that another copy agreed
    with, `queues` those that are rebuilt since they did not have what the log has, `entries` what
    was wrong in index files: entries, slots, pages."""

    blocks: int = 0
    bytes: int = 0
    compared: int = 0
    damaged: int = 0
    mended: int = 0
    mended_bytes: int = 0
    failed: int = 0
    queues: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class _Judged:
    """A block and what is known of it; `end` is where the round continues. `data` are its bytes
    where its records are right."""

    start: int
    end: int
    verdict: Verdict
    fault: str
    data: bytes = b""
    begins: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class _BlockLog:
    """One block, as dispatch reads a log."""

    min_offset: int
    data: bytes
    file_size: int
    begins: NDArray[np.int64]

    def starts(self, start: int, end: int) -> NDArray[np.int64]:
        """Log offsets of its records in start .. end-1."""
        begins = self.begins + self.min_offset
        return begins[slice(*np.searchsorted(begins, (start, end)))]

    def read(self, offset: int, max_bytes: int) -> memoryview:
        begin = offset - self.min_offset
        return memoryview(self.data)[begin : begin + max_bytes]


class Scrubber:
    """See the module. One thread calls `step`; `plan` and `counts` may be read by any."""

    def __init__(
        self,
        store: ScrubbedStore,
        peers: Callable[[], Sequence[Peer]],
        path: Path,
        *,
        bytes_per_s: int,
        interval_ms: int,
        wait: Callable[[float], object] = lambda _seconds: None,
        last_resort: Peer | None = None,
    ) -> None:
        """`last_resort` is asked only about what the peers cannot settle."""
        self._store = store
        self._peers = peers
        self._last_resort = last_resort
        self._path = path
        self._wait = wait
        self.plan = ScrubPlan(interval_ms)
        self.counts = ScrubCounts()
        self._blocks = LogBlocks(store.log, store.files, cold=True)
        now = store.clock.monotonic()
        self._bucket = TokenBucket(bytes_per_s, now)
        self._mending = TokenBucket(bytes_per_s * MENDING_RATE, now)
        self._cuts = store.log.cuts
        self._patches: dict[int, list[Patch]] = {}
        self._wanted = False
        self._rounds = 0
        self._rebuilt: set[int] = set()
        index = store.reput.index
        self._index = None if index is None else IndexScrub(index)
        self._heard: set[tuple[str, int]] = set()
        self._saved_at = now
        self._saved: object = None

    def load(self) -> None:
        """Continue where the last process was; with a damaged note, begin again."""
        try:
            data = read_small(self._store.files, self._path)
            if data is not None:
                self.plan.take_json(decode_checked(data))
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be used, the scrub begins again: %s", self._path, error)

    def begin_round(self) -> None:
        """Begin a round with the next step. Any thread."""
        self._wanted = True

    def close(self) -> None:
        """Note how far it is. Raises OSError."""
        self._blocks.close()
        self._save()

    # ---- one block

    def step(self) -> float:
        """Check one block; returns how many seconds to rest. Raises FlushFailedError, after which
        the store is read-only, and OSError of the note."""
        store, plan = self._store, self.plan
        now_ms, began_s = store.clock.now_ms(), store.clock.thread_time()
        if self._wanted:
            self._wanted = False
            plan.begin_round(now_ms)
        if store.log.cuts != self._cuts:
            self._cuts = store.log.cuts
            self._patches.clear()
            self._blocks.close()
            plan.cut(store.log.wrote.value)
        begin, limit = store.log.min_offset, scrub_limit(store)
        self._hear_readers(begin)
        opened = plan.next_open(begin, now_ms)
        first = plan.next_first(begin, limit) if opened is None else None
        if opened is not None:
            start: int | None = opened.start
        else:
            start = first if first is not None else plan.next_block(begin, limit, now_ms)
        if start is None or start >= limit:
            if plan.progress.rounds != self._rounds:
                self._end_index()
                self._rounds = plan.progress.rounds
            self._blocks.close()
            self._save()
            return IDLE_S
        try:
            judged = self._judged(start, limit)
        except OffsetOutOfRangeError:
            return 0.0  # dropped by retention, or cut: the next step begins elsewhere
        self._act(judged, now_ms)
        if first is not None:
            plan.passed_first(judged.end)
        elif opened is None:
            plan.passed(judged.end)
        elif judged.end < opened.end:
            # what was one stretch of damage comes back block by block: the next one at once
            at_once_ms = now_ms - RETRY_MS
            plan.keep_open(judged.end, opened.end, opened.reason, at_once_ms, lost=opened.lost)
        if store.clock.monotonic() >= self._saved_at + SAVE_S:
            self._save()
        cost = judged.end - judged.start + RECORD_COST * max(len(judged.begins), 1)
        work = int(BYTES_PER_WORK_S * (store.clock.thread_time() - began_s))
        return self._bucket.spend(max(cost, work), store.clock.monotonic())

    def _hear_readers(self, begin: int) -> None:
        """What a reader or dispatch could not read is looked at next, once."""
        log = self._store.log
        for error in log.unreadable:
            if self._is_new(error.file, error.position):
                bad = int(Path(error.file).name) + error.position
                start = self._record_before(bad - error.position, bad)
                self.plan.look_at(max(start, begin), bad + error.size)
        for damage in self._store.damages:
            if damage.start >= begin and self._is_new("", damage.start):
                self.plan.look_at(damage.start, damage.end)

    def _is_new(self, file: str, position: int) -> bool:
        if (file, position) in self._heard:
            return False
        if len(self._heard) >= MAX_OPEN:
            self._heard.clear()
        self._heard.add((file, position))
        return True

    def _record_before(self, base: int, bad: int) -> int:
        """Where a record begins before log offset `bad`, not far if that is possible; at worst
        where its file does."""
        back = BLOCK
        while bad - back > base:
            with suppress(UnreadableError):
                found = self._store.log.next_record(bad - back, bad)
                if found is not None:
                    return found
            back *= 8
        return base

    def _judged(self, start: int, limit: int) -> _Judged:
        store = self._store
        state, fault = CopyState.WHOLE, ""
        try:
            own = check_next(
                self._blocks.read,
                start,
                limit,
                store.log.file_size,
                property_crc=store.config.property_crc,
            )
        except UnreadableError as error:
            own, state = CheckedBlock(start, start, fault=str(error)), CopyState.UNREADABLE
        if own.fault:
            state = state if state is CopyState.UNREADABLE else CopyState.DAMAGED
            fault = own.fault
        question = BlockQuestion(
            start,
            own.end if not fault else 0,
            limit,
            own.checksum,
            store.log_identity.history,
        )
        answers = {peer.name: (peer, self._ask(peer, question)) for peer in self._peers()}
        ends = {each.end for _, each in answers.values() if each.state is CopyState.WHOLE}
        if len(ends) > 1:
            # the log of one of them does not go as far yet: all of the shortest block
            question = replace(question, end=min(ends))
            answers = {
                name: (peer, self._ask(peer, question)) for name, (peer, _) in answers.items()
            }
        copies = [_copy(name, each) for name, (_, each) in answers.items()]
        mine = Copy("", state, _keyed(own.end, own.checksum) if not fault else b"")
        verdict = judge(mine, copies)
        if isinstance(verdict, Lost | Doubt) and (last := self._last_resort) is not None:
            verdict = judge(mine, [*copies, _copy(last.name, self._ask(last, question))])
        if isinstance(verdict, Mend):
            return _Judged(start, _end_in(verdict.checksum), verdict, fault)
        if fault:
            return _Judged(start, self._behind(start, limit), verdict, fault)
        return _Judged(start, own.end, verdict, "", own.data, own.begins)

    def _ask(self, peer: Peer, question: BlockQuestion) -> BlockAnswer:
        try:
            return peer.ask(question)
        except PeerError as error:
            logger.debug("no answer about block %d: %s", question.start, error)
            return ABSENT

    def _behind(self, start: int, limit: int) -> int:
        """Where the round continues behind damage whose end no copy tells."""
        log = self._store.log
        end = min(limit, start - start % log.file_size + log.file_size)
        try:
            return min(log.next_record(start, end) or end, end)
        except UnreadableError:
            return end

    # ---- what follows

    def _act(self, judged: _Judged, now_ms: int) -> None:
        counts = self.counts
        size = judged.end - judged.start
        self.counts = counts = replace(counts, blocks=counts.blocks + 1, bytes=counts.bytes + size)
        verdict, named = judged.verdict, f"log bytes {judged.start}..{judged.end}"
        if judged.fault:
            self.counts = counts = replace(counts, damaged=counts.damaged + 1)
        if isinstance(verdict, Fine):
            self.counts = replace(counts, compared=counts.compared + bool(verdict.agreed))
            self._settle(judged.start, judged.end)
            self._check_queues(judged)
        elif isinstance(verdict, Mend):
            self._mend(judged, verdict, now_ms)
        elif isinstance(verdict, Lost):
            asked = ", ".join(verdict.asked) or "no other node"
            self._keep_open(
                judged,
                f"{named} are damaged ({judged.fault}), and no whole copy was found: {asked} "
                "answered",
                now_ms,
                lost=True,
            )
        else:
            others = ", ".join(verdict.holders)
            self._keep_open(
                judged,
                f"{named} differ from the copy of {others}, and there is no third to tell which is "
                "right",
                now_ms,
                lost=bool(judged.fault),
            )

    def _check_queues(self, judged: _Judged) -> None:
        """Against the log of this node alone. A queue that still differs after it was rebuilt does
        so by right: a broker may count a queue from 0 again."""
        store = self._store
        log = _BlockLog(judged.start, judged.data, store.log.file_size, judged.begins)
        entries = None if self._index is None else self._index.check
        try:
            differ = store.reput.compare(log, judged.start, judged.end, self._rebuilt, entries)
        except StoreError as error:
            logger.warning(
                "scrub: queues and index below %d were not compared: %s", judged.end, error
            )
            return
        self._rebuilt |= differ
        self.counts = replace(self.counts, queues=self.counts.queues + len(differ))
        self._count_entries()

    def _count_entries(self) -> None:
        if self._index is not None:
            self.counts = replace(self.counts, entries=self._index.mended)

    def _end_index(self) -> None:
        """A round has ended."""
        if self._index is not None:
            try:
                with self._store.reput.undisturbed():
                    self._index.finish()
            except StoreError as error:
                logger.warning("scrub: the newest index file was not compared: %s", error)
            self._count_entries()

    def _keep_open(self, judged: _Judged, reason: str, now_ms: int, *, lost: bool) -> None:
        if self.plan.keep_open(judged.start, judged.end, reason, now_ms, lost=lost):
            logger.error("scrub: %s", reason)
            self._saved_at = float("-inf")  # noted at once

    def _settle(self, start: int, end: int) -> None:
        self.plan.settle(start, end)
        self._store.log.unbar(start, end)

    def _mend(self, judged: _Judged, verdict: Mend, now_ms: int) -> None:
        store, start, end = self._store, judged.start, judged.end
        base = start - start % store.log.file_size
        if not judged.fault:
            store.log.bar(start, end)
            if store.log.cuts != self._cuts:
                store.log.unbar(start, end)  # it was cut meanwhile: other bytes may be there
                return
        try:
            patch = Patch(start, self._fetched(judged, verdict), self._cuts)
            waiting = [each for each in self._patches.get(base, []) if each.start != start]
            self._patches[base] = [*waiting, patch]
            store.mend(self._patches[base], pace=self._pace, again=not judged.fault)
        except FlushFailedError:
            raise
        except (StoreError, PeerError) as error:
            self.counts = replace(self.counts, failed=self.counts.failed + 1)
            reason = f"log bytes {start}..{end} are damaged and could not be mended yet: {error}"
            self._keep_open(judged, reason, now_ms, lost=False)
            return
        sources = ", ".join(verdict.sources)
        for each in self._patches.pop(base):
            logger.warning("scrub: mended %d..%d from %s", each.start, each.end, sources)
            self._settle(each.start, each.end)
            self.counts = replace(
                self.counts,
                mended=self.counts.mended + 1,
                mended_bytes=self.counts.mended_bytes + len(each.data),
            )
        self._blocks.close()

    def _fetched(self, judged: _Judged, verdict: Mend) -> bytes:
        """The right bytes. Raises PeerError if none of the sources has them any more."""
        store, fault = self._store, "no source answered"
        last = [] if self._last_resort is None else [self._last_resort]
        for peer in [*self._peers(), *last]:
            if peer.name not in verdict.sources:
                continue
            try:
                data = peer.fetch(judged.start, judged.end)
            except PeerError as error:
                fault = str(error)
                continue
            if _keyed(judged.start + len(data), checksum_of(data)) != verdict.checksum:
                fault = f"{peer.name} sent other bytes than it promised"
                continue
            fault = check_given(
                data, judged.start, store.log.file_size, property_crc=store.config.property_crc
            )
            if not fault:
                return data
        raise PeerError(fault)

    def _pace(self, size: int) -> None:
        now = self._store.clock.monotonic()
        if (wait_s := self._mending.spend(size, now)) > 0:
            self._wait(wait_s)

    def _save(self) -> None:
        value = self.plan.to_json()
        self._saved_at = self._store.clock.monotonic()
        if value != self._saved:
            write_small(self._store.files, self._path, encode_checked(value))
            self._saved = value


def _copy(name: str, answer: BlockAnswer) -> Copy:
    checksum = _keyed(answer.end, answer.checksum) if answer.state is CopyState.WHOLE else b""
    return Copy(name, answer.state, checksum)


def _keyed(end: int, checksum: bytes) -> bytes:
    """Copies are the same if they also end at the same place."""
    return end.to_bytes(_END_SIZE) + checksum


def _end_in(keyed: bytes) -> int:
    return int.from_bytes(keyed[:_END_SIZE])
