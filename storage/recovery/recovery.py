"""Bring a store to one consistent state at open: log, queues, index, producers, offsets.

    1  the log ends behind its last whole record: cut there, durably, with zeros behind it
    2  queues: what lies beyond the recovery point is cut, damaged ones are marked
    3  index and producer table: taken as far as their own positions are right
    4  dispatch from the earliest of those positions to the confirm offset; damaged queues are
       rebuilt from the whole log
    5  the next queue offsets, the consumer offsets, and a new recovery point

On a full disk the dispatch may end early: what is dispatched is served, retention can make room,
and dispatch then continues by itself (reput.py). The next queue offsets and the producers are those
of the log's end in any case.

The log is repaired first, then the files derived from it. Every step can be repeated, so after a
crash in the middle the next open only repeats the work. A log that was being set aside has been
moved completely before this (set_aside.py).
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from tandemlog.format.constants import is_system_topic, topic_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.words import counted

from ..config import ConfirmSource
from ..disk.file_system import remove_tree
from ..disk.small_files import read_small
from ..errors import DiskFullError, StoreLayoutError
from ..folds.fold import ANYWHERE
from ..folds.snapshot_form import snapshot_offset
from ..inspect.geometry import CONFIG_WAY_OUT, config_in_rocksdb
from ..metadata.topics import MAX_QUEUES, TopicConfig, TopicTable
from ..progress import Progress
from ..queues.queue_checkpoint import QueueCheckpoint
from ..queues.queue_table import QueueTable
from ..scrub.store_mending import end_mending
from ..state_files.queue_begins import Numbers
from ..store_parts import StoreParts
from .analysis import Analysis
from .index_checking import check_newest, has_tag_entries
from .index_loading import load_index
from .queue_loading import LoadContext, load_queues
from .recovery_report import RecoveryReport
from .truncation import save_copy
from .undispatched_tail import read_tail

logger = logging.getLogger(__name__)


def recover(
    parts: StoreParts, analysis: Analysis, progress: Progress | None = None
) -> RecoveryReport:
    """Make the store consistent, by what `analysis` says. Nothing else may use the parts.

    Calls `progress(bytes done, bytes in all)` during dispatch. Raises StoreError for files that
    cannot be used or written. The store is then not open.
    """
    if analysis.point is not None and analysis.point.offsets:
        parts.consumer_offsets.check_found()
    elif (folder := config_in_rocksdb(parts.files, parts.paths)) is not None:
        if not parts.consumer_offsets.found:
            raise StoreLayoutError(f"{folder}: {CONFIG_WAY_OUT}")
        logger.warning("%s is left alone: the tables are those of the JSON files", folder)
    report = RecoveryReport.of(analysis)
    tables = parts.topics, parts.groups, parts.consumer_offsets, parts.group_members
    for loaded in (*tables, parts.epochs, parts.log_identity):
        if loaded.note:
            report.notes.append(loaded.note)
    _cut_log(parts, analysis, report)
    if not analysis.clean or parts.checkpoint.value.confirm_phy_offset > analysis.log_end:
        _lower_checkpoint(parts, analysis.log_end)
    _load_queues(parts, analysis, report)
    _load_index(parts, analysis, report)
    _load_producers(parts, report)
    _load_service_folds(parts, analysis, report)
    end_mending(parts)
    _dispatch(parts, analysis, report, progress)
    _clamp_offsets(parts, analysis, report)
    for line in report.lines():
        logger.info("recovery: %s", line)
    return report


def _cut_log(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> None:
    if analysis.remains is not None and analysis.cuts_records:
        report.cut_saved = str(save_copy(parts, analysis.log_end, analysis.remains.end))
    point = analysis.point
    if point is not None and point.flushed > analysis.log_end and not analysis.damages:
        # the beginning of a record is cut, which a replica had flushed: after a crash behind the
        # cut the old point would make it look like damage
        parts.recovery_point.save(replace(point, flushed=analysis.log_end))
    parts.log.truncate(analysis.log_end)
    parts.log.judged_whole()
    parts.log.store_timestamp = analysis.store_timestamp
    if analysis.point is not None and analysis.point.dispatched >= analysis.log_end:
        parts.time_steps.begin_after(analysis.store_timestamp)
    parts.source.trust(analysis.log_end, analysis.damages)
    parts.source.durable = min(analysis.durable, analysis.log_end)
    # as after a cut: a term that begins at the end has no byte, and the next bytes may belong to
    # the one before
    parts.epochs.truncate_suffix(max(analysis.log_end, analysis.log_start + 1))


def _lower_checkpoint(parts: StoreParts, log_end: int) -> None:
    """Queues and index may be cut now and dispatched again: until that is durable, a RocketMQ
    broker that opens the store after another crash must begin at the first log file. And records
    that replace a lost tail must not count as confirmed."""
    parts.checkpoint.save(
        replace(
            parts.checkpoint.value,
            logics_msg_timestamp=0,
            index_msg_timestamp=0,
            logics_physical_offset=0,
            confirm_phy_offset=min(parts.checkpoint.value.confirm_phy_offset, log_end),
        )
    )


def _load_queues(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> None:
    batch = parts.topics.in_batch_queues
    _remove_queues(parts, batch, report)
    point, begins = analysis.point, _without(_begins(parts, analysis, report), batch)
    if point is None:
        # Dispatched again from the first record on: what is there is compared and skipped.
        context = LoadContext(
            analysis.log_start, analysis.log_end, analysis.log_start, None, analysis.clean, begins
        )
    else:
        dispatched = max(min(point.dispatched, analysis.log_end), analysis.log_start)
        context = LoadContext(
            analysis.log_start,
            analysis.log_end,
            dispatched,
            QueueCheckpoint(
                point.dispatched, _without(point.queues, batch), _without(point.least, batch)
            ),
            analysis.clean,
            begins,
        )
    findings = load_queues(
        parts.queues, parts.queue_table, parts.geometry.queue_directories(), context
    )
    report.queues_cut = findings.cut
    report.queues_rebuilt = dict(findings.damaged)


def _without(numbers: Numbers, topics: frozenset[str]) -> Numbers:
    return {topic: queues for topic, queues in numbers.items() if topic not in topics}


def _remove_queues(parts: StoreParts, topics: frozenset[str], report: RecoveryReport) -> None:
    """A broker does not start if a topic of batch queues has another queue too, which older
    versions of this program created from its ordinary records."""
    for topic in sorted(topics):
        path = parts.paths.queues / topic
        if parts.files.status(path) is not None:
            remove_tree(parts.files, path)
            parts.files.fsync_directory(parts.paths.queues)
            report.notes.append(
                f"{path} is removed: topic {topic} has batch queues (queue.type BatchCQ), and a "
                "broker does not start beside other ones"
            )


def _begins(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> Numbers:
    """The numbers that queues had before the log begins; none if the log begins earlier than the
    note says, as an empty one may."""
    value = parts.queue_begins.load()
    if parts.queue_begins.note:
        report.notes.append(parts.queue_begins.note)
    if value is None or value.log_offset > analysis.log_start:
        return {}
    return value.begins


def _load_index(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> None:
    if parts.index is None:
        return
    findings = load_index(
        parts.index,
        parts.files,
        log_start=analysis.log_start,
        log_end=analysis.log_end,
        clean=analysis.clean,
    )
    report.index = findings.notes
    if parts.source.index_tags and findings.files:
        tagged = analysis.point.index_tags if analysis.point is not None else None
        if tagged is None:
            tagged = has_tag_entries(parts.index, parts.source, analysis.log_end)
        if tagged is False:
            parts.source.index_tags = False
            report.index.append("it has no entries for tags and continues without them")
    if findings.compare:
        checked = check_newest(parts.index, parts.source, analysis.log_end)
        if checked.cut or checked.chains:
            report.index.append(
                f"newest file: {checked.kept} entries agree with the log, {checked.cut} were "
                f"cut, {checked.chains} links corrected"
            )


def _load_producers(parts: StoreParts, report: RecoveryReport) -> None:
    start, end = report.log_start, report.log_end
    table = parts.producers
    table.reset(start)
    begins = parts.producer_begins.load(start)
    if parts.producer_begins.note:
        report.notes.append(parts.producer_begins.note)
    data = read_small(parts.files, parts.paths.producers)
    # one that is older than what was taken over with the log is of no use
    stale = begins is not None and data is not None and _offset(data) <= snapshot_offset(begins)
    fault = "" if stale else parts.producer_file.load()
    if fault:
        report.notes.append(fault)
    report.producers_anew = begins is None and (data is None or bool(fault))
    if table.next_offset > end:
        table.truncate(end, parts.source.count_records)
    if begins is not None:
        table.add_missing(begins)


def _offset(data: bytes) -> int:
    """Beyond all for a damaged snapshot: loading it tells what is wrong."""
    try:
        return snapshot_offset(data)
    except FormatError:
        return ANYWHERE


def _load_service_folds(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> None:
    positions = {} if analysis.point is None else analysis.point.folds
    for fold, file in zip(parts.service_folds, parts.fold_files[1:], strict=True):
        fold.reset(report.log_start)
        fault = file.load()
        if fault:
            report.notes.append(fault)
        snapshot, noted = positions.get(fold.name, (-1, 0))
        if file.position is not None and file.position[0] == snapshot:
            fold.pass_to(noted)
        if fold.next_offset > report.log_end:
            fold.truncate(report.log_end, parts.source.count_records)


def _dispatch(
    parts: StoreParts, analysis: Analysis, report: RecoveryReport, progress: Progress | None
) -> None:
    confirmed = _confirmed(parts, analysis)
    parts.confirmed.retreat(confirmed)
    parts.reputed.retreat(max(parts.dispatchers.next_offset, parts.log.min_offset))
    if parts.queues.next_offset > confirmed:
        parts.reput.truncate(confirmed)
    report.queues_rebuilt = _names(parts, parts.queues.damaged)
    done, whole = 0, _work(parts, confirmed)
    try:
        while step := parts.reput.run_once(confirmed):
            report.queues_rebuilt |= {
                name: reason
                for name, reason in _names(parts, parts.queues.damaged).items()
                if name not in report.queues_rebuilt
            }
            done += step
            if progress is not None:
                progress(min(done, whole), whole)
    except DiskFullError as error:
        report.waits = (
            f"dispatch is waiting at {parts.reputed.value}, the log is confirmed up to "
            f"{confirmed}: {error.reason}"
        )
    if analysis.point is None and not len(parts.epochs.table) and not report.waits:
        _drop_deleted(parts, report)
    report.dispatched = parts.reput.messages
    report.confirmed = confirmed
    report.queues = parts.queues.count
    report.add_damages(parts.source.passed.values())
    if parts.index is not None and parts.index.stopped is not None:
        report.index.append(str(parts.index.stopped))
    read_tail(parts, confirmed)


def _drop_deleted(parts: StoreParts, report: RecoveryReport) -> None:
    """A broker's log still has records of topics that were deleted there; without this their
    queues, which have no files, would be rebuilt and serve them."""
    deleted = parts.queues.drop_deleted(parts.topics.is_deleted)
    if deleted:
        report.notes.append(
            f"{counted(len(deleted), 'queue')} of topics that the broker deleted stay without "
            f"files, as there: {', '.join(deleted[:5])}{', …' if len(deleted) > 5 else ''}"
        )


def _confirmed(parts: StoreParts, analysis: Analysis) -> int:
    """The confirm offset at open: the log's end where this store confirms for itself, or was never
    replicated; else the last one that was noted, as far as it is the end of a record."""
    local = parts.config.confirm is ConfirmSource.LOCAL
    if local or (analysis.point is None and not len(parts.epochs.table)):
        return analysis.log_end
    noted = (
        _confirmed_at_least(parts, analysis) if analysis.point is None else analysis.point.confirmed
    )
    noted = max(min(noted, analysis.log_end), analysis.log_start)
    if noted in (parts.queues.next_offset, analysis.log_end, analysis.log_start):
        return noted
    if parts.queues.next_offset <= noted:
        return noted
    # A file begins with a record: from there to the last one that ends at or before the offset.
    position = max(noted - noted % parts.log.file_size, analysis.log_start)
    while (end := parts.source.batch(position, noted, index=False).end) > position:
        position = end
    return position


def _confirmed_at_least(parts: StoreParts, analysis: Analysis) -> int:
    """If the recovery point is lost: the positions of RocketMQ's checkpoint and of the queues,
    which were confirmed (decision 0013). The rest is unknown."""
    newest = parts.queues.newest_physical()
    if not analysis.log_start <= newest < analysis.log_end:
        return analysis.checkpoint.confirm_phy_offset
    end = newest + int.from_bytes(parts.log.view(newest, 4))
    return max(end, analysis.checkpoint.confirm_phy_offset)


def _work(parts: StoreParts, confirmed: int) -> int:
    """How many bytes of log dispatch has to go through, at least 1: for the queues, and once more
    for the folds and for the index where they are behind the queues."""
    queues = parts.queues.next_offset
    behind = [min(fold.next_offset for fold in parts.folds)]
    if parts.index is not None:
        behind.append(parts.index.next_offset)
    whole = max(confirmed - queues, 0)
    whole += sum(max(confirmed - position, 0) for position in behind if position < queues)
    if parts.queues.damaged:
        whole += confirmed - parts.log.min_offset
    return max(whole, 1)


def _names(parts: StoreParts, queues: Mapping[int, str]) -> dict[str, str]:
    named = {}
    for dense, reason in queues.items():
        topic, queue_id = parts.queue_table.name(dense)
        named[f"{topic}/{queue_id}"] = reason
    return named


def _clamp_offsets(parts: StoreParts, analysis: Analysis, report: RecoveryReport) -> None:
    whole = analysis.point is not None and analysis.point.flushed <= analysis.log_end
    if report.clean_stop and whole:
        return

    def end_of(topic: str, queue_id: int) -> int | None:
        dense = parts.queue_table.get(topic, queue_id)
        if dense >= 0 and report.waits:
            return int(parts.queue_table.next_queue_offsets[dense])
        return None if dense < 0 else parts.queues.max_offset(dense)

    if parts.confirmed.value < parts.log.wrote.value:
        return  # unconfirmed records may be confirmed yet, and the offsets may be theirs
    report.offsets_clamped = len(parts.consumer_offsets.clamp(end_of))
    if report.offsets_clamped:
        # Before the first put: else the next open might find the old offsets below the ends of
        # queues that have grown again, and consumers would skip messages.
        parts.consumer_offsets.save(parts.clock.now_ms())


def restore_topics(parts: StoreParts, report: RecoveryReport) -> None:
    """Create topics again that a damaged `topics.json` has lost, once the log is dispatched. Raises
    DiskFullError or StoreReadOnlyError if the table cannot be written.

    The backup of the table is one change older and may lack the newest topic: clients could no
    longer put to it or pull from it, and a master would send the shorter table to its slaves. The
    queues tell the name and how many there are; permissions and attributes are those of a new
    topic. A deleted topic that still has messages comes back too: an operator notices that, but
    would not notice a lost one. An empty topic leaves no trace, so the report warns.
    """
    if not parts.topics.note:
        return
    lost = lost_topics(parts.topics, parts.queue_table)
    note = (
        "topics.json was restored from its backup: the last topic that was created "
        "or changed may be missing"
    )
    if lost:
        parts.topics.restore(lost, parts.clock.now_ms())
        names = ", ".join(topic.name for topic in lost[:5])
        note += (
            f"; {counted(len(lost), 'topic')} with messages created again: {names}"
            + (" and others" if len(lost) > 5 else "")
            + " (check their queues, permissions and attributes)"
        )
    logger.warning(note)
    report.notes.append(note)


def lost_topics(topics: TopicTable, queues: QueueTable) -> list[TopicConfig]:
    """Topics that have messages in these queues, and no row in the table; see restore_topics."""
    highest: dict[str, int] = {}
    for topic, queue_id in queues.names():
        highest[topic] = max(highest.get(topic, 0), queue_id)
    return [
        TopicConfig(topic, max(8, queue_id + 1), max(8, queue_id + 1))
        for topic, queue_id in sorted(highest.items())
        if topic not in topics.table
        and not is_system_topic(topic)
        and topic_fault(topic, new=False) is None
        and queue_id < MAX_QUEUES
    ]
