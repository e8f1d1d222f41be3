"""The archiver's decisions: its state, answers and `now` in, one action out. Pure.

    look ─▶ prove ─▶ ┌ upload ─▶ … ─▶ tables ─▶ publish ┐ ─▶ wait ─▶ look
                     └──────────── a round ─────────────┘

It begins with the newest manifest, of any node, and continues there: nothing of its own has to
survive. A round takes what is confirmed at its beginning; objects are put before the manifest that
names them. A small segment is put again together with the new bytes, if it is no larger than they
are: so each byte is written a logarithmic number of times. That never replaces what is archived by
other bytes: a disk may have turned a bit since, which no CRC covers.

Another node may do the same at the same time. Names of objects say their content, so neither harms
the other; the newest manifest counts, and each looks for it once a minute. A log that was cut while
it was archived is noticed by its history, before the next manifest.

An action that fails is tried again as it was, after pauses that grow. `fault` says in words why
nothing can be archived now.
"""

from collections.abc import Callable
from typing import Final

from tandemlog.format.archive.branches import Behind, Continue, Foreign, continuation
from tandemlog.format.archive.manifest import (
    Manifest,
    SegmentEntry,
    StateEntry,
    merged_history,
)
from tandemlog.format.archive.object_name import ManifestName
from tandemlog.format.errors import FormatError
from tandemlog.format.files.log_history import LogHistory, LogTerm

from .actions import (
    Action,
    Answer,
    ArchiverConfig,
    Damaged,
    Delete,
    Deleted,
    Differs,
    Failed,
    Gone,
    LogView,
    Look,
    Looked,
    NothingWhole,
    Prove,
    Proved,
    Publish,
    Published,
    StateTaken,
    TakeState,
    Upload,
    Uploaded,
    Wait,
)
from .pruning import dead_ends, is_named_by_the_dead, superseded, thinned

FIRST_RETRY_S: Final = 1.0
MOST_LAGS: Final = 3
PATIENCE: Final = 3
"""In times of take_over_s: how long a node waits for one that has what it has deleted, or until it
has caught up with the archive itself."""


class Archiver:
    """See the module. `name` of the node, for people; `wall_ms` says when a manifest was written.

    fault       why nothing is archived; empty if all is well
    waits_for   why another node is to archive, or this one has to catch up first; no fault
    gap         (from, to) of the log that was deleted before it was archived
    """

    def __init__(
        self, name: str, config: ArchiverConfig, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._name = name
        self.config = config
        self._wall_ms = wall_ms
        self.fault = ""
        self.waits_for = ""
        self.gap: tuple[int, int] | None = None
        self.newest: tuple[ManifestName, Manifest] | None = None
        self._asked: Action | None = None
        self._view: LogView | None = None
        self._looked_at: float | None = None
        self._moved_at: float | None = None
        self._gap_seen = (-1, 0.0)  # where it begins, and when it was seen first
        self._behind_since: float | None = None
        self._retry_at = 0.0
        self._failures = 0
        self._lags = 0
        self._works = False
        self._took_over = self._was_chosen = False
        self._is_foreign = False
        self._proof: Prove | None = None
        # what is archived and not yet in a manifest too
        self._history = LogHistory()
        self._segments: list[SegmentEntry] = []
        self._states: list[StateEntry] = []
        self._position = 0
        self._revision = 0
        self._tables: tuple[int, ...] | None = None
        self._is_dirty = False
        # the round
        self._target: int | None = None
        self._round_at = 0.0
        self._published_at = 0.0
        self._largest = config.segment_bytes
        # no segment that ends there or before is put again
        self._stays = 0
        # what is to be deleted
        self._to_replace: set[str] = set()
        self._replaced: dict[str, float] = {}
        self._superseded_at: dict[ManifestName, float] = {}
        self._deletions: list[str] = []

    @property
    def archived_end(self) -> int:
        """Up to which log offset the newest manifest that is known has this log; 0 if it is of
        another log."""
        if self.newest is None or self._is_foreign:
            return 0
        manifest, view = self.newest[1], self._view
        if self._works or view is None:
            return manifest.end
        # 0: of a log that has forgotten its oldest terms that cannot be said
        return min(manifest.end, manifest.history.cut_against(view.history) or manifest.end)

    @property
    def is_working(self) -> bool:
        """Whether this node archives."""
        return self._works

    def next(self, view: LogView, now: float, *, hurry: bool = False) -> Action:
        """The one thing to do now. `hurry`: begin a round whatever the interval says."""
        self._view = view
        self._asked = self._next(view, now, hurry)
        return self._asked

    def _next(self, view: LogView, now: float, hurry: bool) -> Action:
        if now < self._retry_at:
            return Wait(self._retry_at)
        if self._works and not (view.is_chosen or self._took_over):
            self._leave_it(now)
        if self._works and self._is_cut(view):
            self._begin_again()
        if not self._works and view.is_chosen and not self._was_chosen:
            self._looked_at = None  # it has waited for another node
        if self._must_look(now):
            return Look()
        if not self._works:
            assert self._looked_at is not None
            return Wait(self._looked_at + self.config.look_interval_s)
        if self._proof is not None:
            return self._proof
        self._take_history(view.history)
        if not self._works:
            return Wait(now + FIRST_RETRY_S)
        return self._next_of_round(view, now, hurry)

    def answer(self, answer: Answer, now: float) -> None:
        """What came of the action that was asked for last."""
        asked, view = self._asked, self._view
        assert view is not None
        if isinstance(answer, Failed):
            self._failures += 1
            wait_s = FIRST_RETRY_S * 2 ** min(self._failures - 1, 16)
            self._retry_at = now + min(wait_s, self.config.retry_s)
            self.fault = answer.reason
            return
        if isinstance(answer, Damaged):
            self.fault = answer.reason
            self._retry_at = now + self.config.retry_s
            return
        if self._failures or isinstance(asked, Upload):
            self._failures, self.fault = 0, ""
        match answer:
            case Looked():
                self._look(answer, view, now)
            case Proved(is_equal=True):
                self._proof = None
            case Proved() if self.newest is not None:
                self._is_foreign = True
                self._stop(f"the archive's bytes before {self._position} are not those of this log")
            case Uploaded(entry=entry):
                self._add(entry)
            case NothingWhole() if isinstance(asked, Upload):
                self._without_a_whole_record(asked, view, now)
            case Differs():
                self._stays = self._position
            case Gone():
                self._begin_again()
            case StateTaken(entry=entry, tables=tables):
                self._states.append(entry)
                # consumer offsets do not come with a prologue: those of now follow at the end
                self._tables = None if entry.has_prologue else tables
                self._is_dirty = True
            case Published(name=name) if isinstance(asked, Publish):
                self._publish(name, asked.manifest, now)
            case Deleted() if isinstance(asked, Delete):
                self._deletions.remove(asked.key)

    # --- looking

    def _must_look(self, now: float) -> bool:
        if self._looked_at is None:
            return True
        is_busy = self._target is not None
        patience = self.config.stale_s if is_busy else self.config.look_interval_s
        return now - self._looked_at >= patience

    def _look(self, found: Looked, view: LogView, now: float) -> None:
        self._looked_at, self._was_chosen = now, view.is_chosen
        is_known = _name(found.newest) == _name(self.newest)
        if self._is_old(found):
            return
        if not is_known or self._moved_at is None:
            self._moved_at = now
        if self._works and is_known:
            if found.newest is not None:
                self._collect(*found.newest, found.names, now)
            return
        self.newest = found.newest
        self._replaced.clear()
        self._to_replace.clear()
        self._works = self._took_over = False
        manifest = None if found.newest is None else found.newest[1]
        plan = continuation(manifest, view.history, view.begin, view.end, view.file_size)
        self._is_foreign = isinstance(plan, Foreign)
        if not isinstance(plan, Behind):
            self._behind_since = None
        if not view.is_chosen:
            has_more = isinstance(plan, Continue) and view.end > plan.offset
            if not has_more or now - self._moved_at < self.config.take_over_s:
                self.fault, self.waits_for = "", "another node archives"
                return
        if (
            isinstance(plan, Continue)
            and plan.gap is not None
            and self._may_be_elsewhere(plan.gap, now)
        ):
            return
        self._took_over = not view.is_chosen
        match plan:
            case Behind(reason=reason):
                self._stay_behind(reason, view, now)
            case Foreign(reason=reason):
                self._stop(reason)
            case Continue():
                self._continue(plan, manifest, view, now)

    def _may_be_elsewhere(self, gap: tuple[int, int], now: float) -> bool:
        """Whether another node may have what this one has deleted: it takes over, as of an archive
        that stands still. A gap that is archived stays for ever."""
        if self._gap_seen[0] != gap[0]:
            self._gap_seen = gap[0], now
        if now - self._gap_seen[1] >= PATIENCE * self.config.take_over_s:
            return False
        self.fault = ""
        self.waits_for = f"the log from {gap[0]} to {gap[1]} is not here, maybe on another node"
        return True

    def _stay_behind(self, reason: str, view: LogView, now: float) -> None:
        """For a moment after a failover. For long, another cluster writes there: its newer epoch
        counts, and nothing of this one does."""
        self.fault, self.waits_for = "", reason
        if self._behind_since is None:
            self._behind_since = now
        if view.is_chosen and now - self._behind_since >= PATIENCE * self.config.take_over_s:
            self.fault = (
                f"{reason}. Does another cluster archive there, as one that was restored from it? "
                "Give each an archive of its own"
            )

    def _is_old(self, found: Looked) -> bool:
        """Whether a manifest that is known to be there is not listed yet: a list may lag. A few
        times in a row, and it is not there any more."""
        if self.newest is None or (found.newest is not None and found.newest[0] >= self.newest[0]):
            self._lags = 0
            return False
        self._lags += 1
        return self._lags <= MOST_LAGS

    def _continue(
        self, plan: Continue, manifest: Manifest | None, view: LogView, now: float
    ) -> None:
        base = plan.base
        self.fault = self.waits_for = ""
        self._works, self._target = True, None
        self._history = LogHistory() if base is None else base.history
        self._position = plan.offset
        # a log that has forgotten its oldest terms has none in common with it
        self._take_history(view.history)
        self._segments = [] if base is None else list(base.segments)
        self._states = [] if base is None else list(base.states)
        self._revision = 0 if manifest is None else manifest.revision
        self._tables = None
        self._is_dirty = False
        self._round_at = now
        self._largest = self.config.segment_bytes
        self._stays = 0
        self._proof = None if plan.proof is None else Prove(plan.proof, plan.offset)
        if plan.gap is not None:
            self.gap = plan.gap

    def _stop(self, reason: str) -> None:
        """Until the next look."""
        self._works, self._target, self._proof = False, None, None
        self.fault = reason

    def _leave_it(self, now: float) -> None:
        """To the node that is chosen."""
        self._works, self._target, self._proof = False, None, None
        self._moved_at = self._looked_at = now
        self._was_chosen = False
        self.fault, self.waits_for = "", "another node archives"

    def _begin_again(self) -> None:
        """With the newest manifest: the log, or the archive, is not what it was."""
        self._works, self._target, self._proof = False, None, None
        self._looked_at = None

    def _take_history(self, log: LogHistory) -> None:
        try:
            self._history = merged_history(self._history, log, self._position)
        except FormatError as error:
            self._stop(f"the archive's history and that of this log are not one: {error}")

    def _is_cut(self, view: LogView) -> bool:
        cut = self._history.cut_against(view.history)
        return cut < self._position or view.end < self._position or view.begin > self._position

    # --- a round

    def _next_of_round(self, view: LogView, now: float, hurry: bool) -> Action:
        if self._target is None and not self._begin_round(view, now, hurry):
            if self._deletions:
                return Delete(self._deletions[0])
            assert self._looked_at is not None
            return Wait(min(self._round_at, self._looked_at + self.config.look_interval_s))
        assert self._target is not None
        self._target = min(self._target, view.end)
        if self._position % view.file_size == 0 and self._position and not self._has_prologue():
            return TakeState(self._position, prologue=True)
        is_due = self._is_dirty and now - self._published_at >= self.config.interval_s
        if self._position < self._target and not (is_due and self._reaches_position):
            return self._upload(view, self._target)
        if self._tables != view.tables:
            return TakeState(self._position, prologue=False)
        self._revision += 1  # each try has one of its own: the last one counts
        return Publish(self._manifest())

    def _begin_round(self, view: LogView, now: float, hurry: bool) -> bool:
        new = view.end - self._position
        is_due = hurry or now >= self._round_at or new >= self.config.segment_bytes
        has_work = new > 0 or (self._tables != view.tables and self._reaches_position)
        if not (is_due and has_work):
            if now >= self._round_at:
                self._round_at = now + self.config.interval_s
            return False
        self._target = view.end
        self._round_at = now + self.config.interval_s
        return True

    @property
    def _reaches_position(self) -> bool:
        """Whether a manifest can end here: behind a gap, only after the first segment."""
        return bool(self._segments) and self._segments[-1].end == self._position

    def _has_prologue(self) -> bool:
        return any(
            each.has_prologue and each.name.log_offset == self._position for each in self._states
        )

    def _upload(self, view: LogView, target: int) -> Upload:
        at = self._position
        file_end = at - at % view.file_size + view.file_size
        term, term_end = _term_at(view.history, at)
        end = min(target, file_end, target if term_end is None else term_end)
        start = self._joined_start(end, term.term_id, view)
        again = tuple(each.name for each in self._segments if each.start >= start)
        return Upload(start, min(end, start + self._largest), term.term_id, again)

    def _joined_start(self, end: int, term_id: int, view: LogView) -> int:
        """Where the new segment begins: at the position, or at an earlier segment's start, if all
        that follows that one is as large as it."""
        at = self._position
        file_begin = at - at % view.file_size
        for each in reversed(self._segments):
            size = each.name.size
            if (
                each.end != at
                or each.end <= self._stays
                or not each.is_whole
                or each.name.term_id != term_id
                or each.start < max(file_begin, view.begin)
                or size > end - at
                or end - each.start > self.config.segment_bytes
            ):
                break
            at = each.start
        return at

    def _add(self, entry: SegmentEntry) -> None:
        if entry.end <= self._position:
            self._begin_again()
            return
        kept = [each for each in self._segments if each.start < entry.start]
        for each in self._segments[len(kept) :]:
            self._to_replace.update((each.name.log_key, each.name.index_key))
        for key in (entry.name.log_key, entry.name.index_key):
            self._to_replace.discard(key)
            self._replaced.pop(key, None)
            if key in self._deletions:
                self._deletions.remove(key)
        self._segments = [*kept, entry]
        self._position = entry.end
        self._largest = self.config.segment_bytes
        self._is_dirty = True

    def _without_a_whole_record(self, asked: Upload, view: LogView, now: float) -> None:
        if asked.limit - asked.start >= self._largest and asked.limit < view.end:
            self._largest *= 2  # a record that is larger than a segment
            return
        self.fault = f"no record that begins at {self._position} ends before {asked.limit}"
        self._retry_at = now + self.config.interval_s

    # --- manifests

    def _manifest(self) -> Manifest:
        view = self._view
        assert view is not None
        return Manifest(
            file_size=view.file_size,
            history=self._history,
            segments=tuple(self._segments),
            states=thinned(self._states),
            end=self._position,
            revision=self._revision,
            written_ms=self._wall_ms(),
            archiver=self._name,
        )

    def _publish(self, name: ManifestName, manifest: Manifest, now: float) -> None:
        kept = set(manifest.states)
        self._to_replace.update(each.name.key for each in self._states if each not in kept)
        for key in self._to_replace:
            self._replaced.setdefault(key, now)
        self._to_replace.clear()
        self._states = list(manifest.states)
        self.newest = name, manifest
        self._is_dirty = False
        self._published_at = self._moved_at = now
        if self._target is not None and self._position >= self._target:
            self._target = None

    def _collect(
        self, newest: ManifestName, manifest: Manifest, names: tuple[ManifestName, ...], now: float
    ) -> None:
        """What can be deleted: it was replaced long ago, and no manifest that counts names it."""
        old = superseded(newest, manifest, names)
        # not the first time it was seen: the newest of a quiet log is as old as it was quiet
        self._superseded_at = {
            name: self._superseded_at.get(name, now) for name in names if name.key in old
        }
        forks = dead_ends(manifest, names).values()
        ripe = {key for key, since in self._replaced.items() if now - since >= self.config.grace_s}
        if ripe:
            ripe -= set(manifest.keys())
        for key in ripe:
            del self._replaced[key]
        self._deletions = [
            name.key
            for name, since in self._superseded_at.items()
            if now - since >= self.config.grace_s
        ]
        self._deletions += sorted(key for key in ripe if not is_named_by_the_dead(key, forks))


def _name(found: tuple[ManifestName, Manifest] | None) -> ManifestName | None:
    return None if found is None else found[0]


def _term_at(history: LogHistory, offset: int) -> tuple[LogTerm, int | None]:
    """The term that has the byte at `offset`, and where the next one begins."""
    current = LogTerm(0, 0, 0)
    for term in history.terms:
        if term.start_offset > offset:
            return current, term.start_offset
        current = term
    return current, None
