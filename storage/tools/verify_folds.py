"""The snapshots of the folds against folds that are made from the log again, for verify.

    log        | L .....................| S ...............| T .....        one walk over it
    fresh      '- every record applied -' compared
    snapshot   true at S, from its file  ' nothing changes '  T: what the recovery point says

L is where the log begins, S the snapshot's position. Each fold has its comparison (tools/folds),
since the bytes of two snapshots of one state may differ. An open applies the log behind S to the
snapshot, but nothing below T, which the recovery point notes beside S: no record from S to T may
change the state.

Nothing is compared where the log is damaged below S, or ends before it: an open then takes the fold
back by itself. What is kept is what a node keeps of the same folds, twice.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandemlog.format.columns.dispatch import DispatchColumns, dispatch_columns
from tandemlog.format.errors import FormatError
from tandemlog.format.files.queue_unit import DelayLevels

from ..config import StoreConfig
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small
from ..folds.delay_fold import DelayFold
from ..folds.dispatch_batch import DispatchBatch
from ..folds.fold import Fold
from ..folds.lease_fold import LeaseFold
from ..folds.transaction_fold import TransactionFold
from ..log.log_scanner import Damage, ScanPart
from ..producers.producer_snapshot import decode
from ..producers.producer_table import ProducerTable
from ..state_files.recovery_point import RecoveryPoint
from ..store_paths import StorePaths
from .faults import Fault, VerifyReport
from .folds.delay_differences import delay_differences
from .folds.findings import Findings
from .folds.lease_differences import lease_differences
from .folds.producer_differences import producer_differences
from .folds.transaction_differences import FreshTransactions, transaction_differences

WAY_OUT = "remove the file while no node has the store open: the next open makes it from the log"
_SAID = 3
"""Records of one fold that cannot be read, said one by one."""


@dataclass(slots=True)
class _Watched:
    """One fold: what its snapshot says, restored, and the same made from the log so far. `end` is
    the position of the snapshot, and `noted` up to which the recovery point says that nothing
    changes it. `changed_at`: where a record below that does. `misplaced`: no record begins at
    `end`. `said`: records that the fold cannot read."""

    path: Path
    data: bytes
    snapshot: Fold
    fresh: Fold
    compare: Callable[[int], Findings]
    end: int
    noted: int
    findings: Findings | None = None
    changed_at: int | None = None
    misplaced: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def done_at(self) -> int:
        """Records from there on say nothing about this fold."""
        return max(self.end, self.noted if self.changed_at is None else 0)


class FoldCheck:
    """The folds of one store, stretch by stretch."""

    def __init__(
        self,
        config: StoreConfig,
        files: FileSystem,
        point: RecoveryPoint | None,
        log_start: int,
        report: VerifyReport,
    ) -> None:
        self._report = report
        self._start = log_start
        self._file_size = config.commit_log_file_size
        self._levels = DelayLevels(config.delay_levels)
        self._watched = list(self._found(config, files, point))

    def _found(
        self, config: StoreConfig, files: FileSystem, point: RecoveryPoint | None
    ) -> Iterator[_Watched]:
        paths = StorePaths(config.directory)
        noted = {} if point is None else point.folds
        folds: dict[Path, Callable[[bytes], _Pair]] = {
            paths.producers: lambda data: _producers(config, data),
            paths.folds / DelayFold.name: lambda _: _delays(),
            paths.folds / LeaseFold.name: lambda _: _leases(),
            paths.folds / TransactionFold.name: lambda _: _transactions(),
        }
        for path, make in folds.items():
            try:
                data = read_small(files, path)
            except OSError:
                continue  # small_faults names it
            if data is None:
                continue
            try:
                snapshot, fresh, compare = make(data)
                snapshot.restore(data)
            except FormatError as error:
                self._report.notes.append(
                    f"{path} is not compared: {error}; the next open applies the whole log"
                )
                continue
            fresh.reset(self._start)
            end = snapshot.next_offset
            taken, until = noted.get(fresh.name, (-1, 0))
            yield _Watched(
                path, data, snapshot, fresh, compare, end, until if taken == end else end
            )

    # ---- the log

    def take(self, columns: DispatchColumns, part: ScanPart) -> None:
        """The next stretch of the log."""
        begin = int(columns.physical_offset[0])
        watched = [each for each in self._watched if begin < each.done_at]
        if not watched:
            return
        whole = _batch(columns, part, part.end_offset)
        for each in watched:
            if each.end > begin and each.findings is None:
                self._make(each, whole, part)
            if each.end < part.end_offset and each.noted > begin and each.changed_at is None:
                self._go_on(each, whole, part)

    def _make(self, each: _Watched, whole: DispatchBatch, part: ScanPart) -> None:
        """Bring the fresh fold on, and compare it if this is all."""
        if each.end >= whole.end:
            _say(each, each.fresh.apply(whole))
            if each.end == whole.end:
                self._compare(each)
            return
        starts = whole.columns.physical_offset
        count = int(starts.searchsorted(each.end))
        each.misplaced = count == len(starts) or int(starts[count]) != each.end
        if not each.misplaced:
            _say(each, each.fresh.apply(self._rows(part, 0, count)))
            self._compare(each)

    def _go_on(self, each: _Watched, whole: DispatchBatch, part: ScanPart) -> None:
        """Whether a record below `noted` changes what the snapshot says."""
        starts = whole.columns.physical_offset
        first = int(starts.searchsorted(each.end))
        last = int(starts.searchsorted(each.noted))
        if first >= last or each.misplaced:
            return
        self._compare(each)
        before = each.snapshot.changes
        # it skips the records before its position by itself
        below = whole if each.noted >= whole.end else self._rows(part, first, last)
        each.snapshot.apply(below)
        if each.snapshot.changes != before:
            each.changed_at = self._first_change(each, part, first, last)

    def _first_change(self, each: _Watched, part: ScanPart, first: int, last: int) -> int:
        """The log offset of the first record of these that changes the state."""
        each.snapshot.restore(each.data)
        before = each.snapshot.changes
        for row in range(first, last):
            batch = self._rows(part, row, row + 1)
            each.snapshot.apply(batch)
            if each.snapshot.changes != before:
                return batch.start
        return self._rows(part, first, last).start

    def _rows(self, part: ScanPart, first: int, last: int) -> DispatchBatch:
        """Some records of a stretch."""
        positions, sizes = part.walk.positions[first:last], part.walk.sizes[first:last]
        columns = dispatch_columns(
            part.data, positions, sizes, part.base, delay_levels=self._levels, index=False
        )
        end = part.base + int(positions[-1]) + int(sizes[-1]) if len(positions) else part.base
        return _batch(columns, part, end)

    def _compare(self, each: _Watched) -> None:
        if each.findings is None:
            each.findings = each.compare(self._start)

    # ---- the outcome

    def finish(self, log_end: int, damages: Iterable[Damage]) -> None:
        """The log ends at `log_end`; `damages` are all that the scan has found."""
        starts = [each.start for each in damages]
        for each in self._watched:
            self._report.notes += each.said[:_SAID]
            damage = next((start for start in starts if start < each.end), None)
            if each.end > log_end:
                self._report.notes.append(
                    f"{each.path} is not compared: it is true for the log below {each.end}, which "
                    f"ends at {log_end}; the next open takes it back to that"
                )
            elif damage is not None:
                self._report.notes.append(
                    f"{each.path} is not compared: the log below its position {each.end} is "
                    f"damaged, at {damage}"
                )
            else:
                self._judge(each, starts)

    def _judge(self, each: _Watched, damages: list[int]) -> None:
        report, path = self._report, str(each.path)
        at_file = each.end % self._file_size == 0
        if each.misplaced or (each.findings is None and each.end > self._start and not at_file):
            reason = f"it is true for the log below {each.end}, where no record begins; {WAY_OUT}"
            report.add(path, each.end, reason)
            return
        self._compare(each)
        findings = each.findings
        assert findings is not None  # just compared
        report.folds[each.fresh.name] = each.end
        report.notes += findings.notes
        differences = [
            Fault(path, named.position, f"{named.text}; {WAY_OUT}") for named in findings.named
        ]
        if findings.count > len(findings.named):
            differences[-1] = Fault(
                path,
                findings.named[-1].position,
                f"{findings.named[-1].text} ({findings.count - len(differences)} more differ); "
                f"{WAY_OUT}",
            )
        report.add_faults(differences)
        if each.changed_at is not None and not any(start < each.noted for start in damages):
            report.add(
                path,
                each.changed_at,
                f"the record at log offset {each.changed_at} changes what it says; by the "
                f"recovery point nothing does below {each.noted}, so the next open would not "
                f"apply it; {WAY_OUT}",
            )


def _batch(columns: DispatchColumns, part: ScanPart, end: int) -> DispatchBatch:
    start = int(columns.physical_offset[0])
    return DispatchBatch(start, end, columns, part.data[start - part.base : end - part.base].data)


def _say(each: _Watched, faults: list[str]) -> None:
    each.said += [f"{each.fresh.name}: ignored: {fault}" for fault in faults]
    del each.said[_SAID:]


# ---- each fold: the snapshot's, the fresh one, and how they are compared

_Pair = tuple[Fold, Fold, Callable[[int], Findings]]


def _delays() -> _Pair:
    snapshot, fresh = DelayFold(), DelayFold()
    return snapshot, fresh, lambda start: delay_differences(fresh, snapshot, start)


def _leases() -> _Pair:
    snapshot, fresh = LeaseFold(), LeaseFold()
    return snapshot, fresh, lambda start: lease_differences(fresh, snapshot, start)


def _transactions() -> _Pair:
    snapshot, fresh = TransactionFold(), FreshTransactions()
    return snapshot, fresh, lambda start: transaction_differences(fresh, snapshot, start)


def _producers(config: StoreConfig, data: bytes) -> _Pair:
    kept = config.producer_sequences_kept
    known = decode(data, 0.0).producers
    limit = max(config.producers_kept, len(known) + 1)
    snapshot, fresh = ProducerTable(limit=limit), ProducerTable(kept=kept, limit=limit)

    def compare(start: int) -> Findings:
        made = decode(fresh.snapshot().encode(), 0.0).producers
        return producer_differences(made, known, start, full=len(made) >= limit)

    return snapshot, fresh, compare
