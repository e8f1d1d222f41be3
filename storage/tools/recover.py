"""Recover a store that no node has open: opens and closes it, and reports what that did.

`plan` only examines: what would be cut, which queues would be rebuilt. It changes no file, so it
cannot know what dispatch would then find in the index.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tandemlog.format.files.checkpoint import Checkpoint
from tandemlog.format.words import counted

from ..clock import Clock
from ..config import ConfirmSource, StoreConfig
from ..disk.file_system import FileSystem
from ..disk.real_file_system import RealFileSystem
from ..errors import DiskFullError
from ..inspect.geometry import Geometry
from ..inspect.queue_files import open_queues
from ..message_store import MessageStore
from ..metadata.epoch_file import EpochFile
from ..progress import Progress
from ..recovery.analysis import Analysis
from ..recovery.last_stop import LastStop
from ..recovery.opening import survey
from ..recovery.persistence import NOTHING
from ..recovery.recovery_report import RecoveryReport
from ..state_files.abort_file import AbortFile
from ..state_files.lock_file import LockFile
from ..state_files.recovery_point import RecoveryPointFile
from ..state_files.store_checkpoint import StoreCheckpoint
from ..store_paths import StorePaths
from .faults import page_cache_caution, set_aside_caution

if TYPE_CHECKING:
    from ..errors import MissingFileError


def recover(
    config: StoreConfig,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> RecoveryReport:
    """Open the store, recover it, dispatch to the end of its log, close it cleanly.

    The confirm offset that a replica has noted is kept: records above it are in the queues now, but
    the node that opens the store next removes them again until they are confirmed. Raises
    StoreLockedError while a node has it open, DiskFullError if not all could be dispatched, and
    what MessageStore.open raises.
    """
    files = files if files is not None else RealFileSystem()
    paths = StorePaths(config.directory)
    epochs = EpochFile(paths.epochs, files)
    epochs.load()
    store = MessageStore.open(
        replace(config, confirm=ConfirmSource.LOCAL),
        files=files,
        clock=clock,
        progress=progress,
        confirmed_at_most=noted_confirm(paths, files) if len(epochs.table) else None,
    )
    store.close()
    if store.recovery.waits:
        raise DiskFullError(store.recovery.waits)
    return store.recovery


def noted_confirm(paths: StorePaths, files: FileSystem) -> int:
    """Up to where the log of a replica was confirmed when its store was closed."""
    point = RecoveryPointFile(paths.recovery_point, files).load()
    if point is not None:
        return point.confirmed
    return StoreCheckpoint(paths.checkpoint, files).load().confirm_phy_offset


def plan(config: StoreConfig, files: FileSystem | None = None) -> RecoveryReport:
    """What `recover` would find and do; nothing is written. Raises StoreLockedError while a node
    has the store open: what it is just writing would look like damage."""
    files = files if files is not None else RealFileSystem()
    paths = StorePaths(config.directory)
    abort = AbortFile(paths.abort, files)
    LockFile(paths.lock, abort, files).check()
    broken_off = set_aside_caution(paths, files)
    if broken_off is None:
        geometry, analysis = survey(config, files)
    else:
        # the rest of the log will be moved too, and is not analyzed
        analysis = Analysis(not abort.exists(), NOTHING, Checkpoint())
    report = RecoveryReport.of(analysis)
    report.confirmed = analysis.log_end
    report.doubt = LastStop(paths, files).next_session(analysis).doubt
    if analysis.point is None or analysis.point.dispatched <= analysis.scanned_from:
        report.dispatched = analysis.scanned_records
    if broken_off is None:
        _plan_queues(geometry, files, analysis, report)
    for caution in (page_cache_caution(paths, files), broken_off):
        if caution is not None:
            report.notes.append(caution.reason)
    return report


def _plan_queues(
    geometry: Geometry, files: FileSystem, analysis: Analysis, report: RecoveryReport
) -> None:
    point = analysis.point
    expected = {
        (topic, queue_id): end
        for topic, ends in (point.queues if point is not None else {}).items()
        for queue_id, end in ends.items()
    }
    gaps: list[MissingFileError] = []
    for queue in open_queues(geometry, files, gaps):
        report.queues += 1
        name = f"{queue.topic}/{queue.queue_id}"
        recorded = expected.pop((queue.topic, queue.queue_id), 0)
        if recorded < 0:
            report.queues_rebuilt[name] = "it was damaged before the last stop"
        elif queue.end < recorded:
            units = counted(queue.end, "unit")
            report.queues_rebuilt[name] = f"it holds {units}, it had {recorded}"
        elif queue.log_end > analysis.log_end:
            report.queues_cut.append(f"{name}: units that point beyond {analysis.log_end}")
    for gap in gaps:
        topic, queue_id = gap.directory.parent.name, int(gap.directory.name)
        expected.pop((topic, queue_id), None)
        report.queues_rebuilt[f"{topic}/{queue_id}"] = str(gap)
    for (topic, queue_id), end in expected.items():
        if end:
            report.queues_rebuilt[f"{topic}/{queue_id}"] = "its directory is missing"
