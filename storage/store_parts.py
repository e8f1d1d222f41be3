"""The parts that a store is made of, opened but not yet recovered: what recovery works on.

Files are opened in the order of their layers; this changes nothing in the log, the queues or the
index.
"""

from dataclasses import dataclass

from tandemlog.format.files.queue_unit import DelayLevels

from .clock import SteadyClock
from .config import StoreConfig
from .disk.file_system import FileSystem
from .dispatch.mending_source import MendingSource, RecordWitness
from .dispatch.reput import Dispatchers, ReputService
from .errors import StoreError
from .index.index_service import IndexService
from .inspect.geometry import Geometry
from .log.commit_log import CommitLog
from .metadata.consumer_offsets import ConsumerOffsets
from .metadata.epoch_file import EpochFile
from .metadata.group_members import GroupMembers
from .metadata.log_identity import LogIdentity
from .metadata.topics import GroupTable, TopicTable
from .positions import Position
from .producers.producer_table import ProducerTable
from .queues.consume_queue_store import ConsumeQueueStore
from .queues.queue_table import QueueTable
from .reads.store_reader import StoreReader
from .state_files.producer_begins import ProducerBeginsFile
from .state_files.queue_begins import QueueBeginsFile
from .state_files.recovery_point import RecoveryPointFile
from .state_files.seen_time import SeenTime
from .state_files.store_checkpoint import StoreCheckpoint
from .state_files.time_steps import TimeSteps
from .stats import StoreStats
from .store_paths import StorePaths


@dataclass(frozen=True, slots=True)
class StoreParts:
    """See the module; `config` has the sizes of the files on disk, `paths` where they are."""

    config: StoreConfig
    files: FileSystem
    clock: SteadyClock
    paths: StorePaths
    geometry: Geometry
    log: CommitLog
    queue_table: QueueTable
    queues: ConsumeQueueStore
    index: IndexService | None
    producers: ProducerTable
    source: MendingSource
    reput: ReputService
    reader: StoreReader
    confirmed: Position
    reputed: Position
    topics: TopicTable
    groups: GroupTable
    consumer_offsets: ConsumerOffsets
    group_members: GroupMembers
    epochs: EpochFile
    log_identity: LogIdentity
    checkpoint: StoreCheckpoint
    recovery_point: RecoveryPointFile
    queue_begins: QueueBeginsFile
    producer_begins: ProducerBeginsFile
    stats: StoreStats
    seen_time: SeenTime
    time_steps: TimeSteps


def open_parts(geometry: Geometry, files: FileSystem, clock: SteadyClock) -> StoreParts:
    """Raises StoreLayoutError or CorruptStoreError if files cannot be used at all."""
    config = geometry.adopted()
    paths = StorePaths(config.directory)
    files.make_directory(paths.own)
    topics, groups, offsets, members = _load_tables(config, paths, files)
    epochs, checkpoint = EpochFile(paths.epochs, files), StoreCheckpoint(paths.checkpoint, files)
    epochs.load()
    checkpoint.load()
    identity = LogIdentity(paths.log_identity, files, epochs)
    identity.load()
    log = CommitLog(config, files, clock)
    confirmed, reputed = Position("confirmed"), Position("reputed")
    queue_table = QueueTable()
    queues = ConsumeQueueStore(
        paths.queues, files, queue_table, file_size=config.queue_file_size, workshop=paths.own
    )
    producers = ProducerTable(
        kept=config.producer_sequences_kept,
        limit=config.producers_kept,
        safe_offset=lambda: min(log.flushed.value, confirmed.value),
        monotonic=clock.monotonic,
    )
    source = _open_source(config, log, queues)
    stats = StoreStats(clock.monotonic())
    stats.flush_latency, queues.traffic = log.flush_latency, stats.traffic
    seen_time, time_steps = _load_times(paths, files, clock)
    reader = StoreReader(
        log, queues, queue_table, confirmed, stats,
        property_crc=config.property_crc, time_steps=time_steps,
    )  # fmt: skip
    index = reader.index = _open_index(config, paths, files, clock, reader, time_steps)
    dispatchers = Dispatchers(queue_table, queues, producers, index, time_steps)
    reput = ReputService(source, dispatchers, confirmed, reputed, clock)
    source.without_queues = lambda: topics.in_batch_queues
    queues.mender.records = RecordWitness(log, lambda: epochs.table)
    # a queue that a reader has found damaged is rebuilt at once
    reader.on_damage = queues.on_damage = reput.wake
    return StoreParts(
        config=config,
        files=files,
        clock=clock,
        paths=paths,
        geometry=geometry,
        log=log,
        queue_table=queue_table,
        queues=queues,
        index=index,
        producers=producers,
        source=source,
        reput=reput,
        reader=reader,
        confirmed=confirmed,
        reputed=reputed,
        topics=topics,
        groups=groups,
        consumer_offsets=offsets,
        group_members=members,
        epochs=epochs,
        log_identity=identity,
        checkpoint=checkpoint,
        recovery_point=RecoveryPointFile(paths.recovery_point, files),
        queue_begins=QueueBeginsFile(paths.queue_begins, files),
        producer_begins=ProducerBeginsFile(paths.producer_begins, files),
        stats=stats,
        seen_time=seen_time,
        time_steps=time_steps,
    )


def _open_source(config: StoreConfig, log: CommitLog, queues: ConsumeQueueStore) -> MendingSource:
    return MendingSource(
        log,
        lambda: queues.next_offset,
        delay_levels=DelayLevels(config.delay_levels),
        index=config.index_enabled,
        index_tags=config.index_tags,
        property_crc=config.property_crc,
    )


def _open_index(
    config: StoreConfig,
    paths: StorePaths,
    files: FileSystem,
    clock: SteadyClock,
    reader: StoreReader,
    time_steps: TimeSteps,
) -> IndexService | None:
    if not config.index_enabled:
        return None
    return IndexService(
        paths.index, paths.own, files, clock,
        slots=config.index_slots, entries=config.index_entries, time_of=reader.store_timestamp,
        time_steps=time_steps.meet,
    )  # fmt: skip


def _load_times(
    paths: StorePaths, files: FileSystem, clock: SteadyClock
) -> tuple[SeenTime, TimeSteps]:
    seen_time = SeenTime(paths.seen_time, files, clock)
    time_steps = TimeSteps(paths.time_steps, files)
    seen_time.load()
    time_steps.load()
    return seen_time, time_steps


def _load_tables(
    config: StoreConfig, paths: StorePaths, files: FileSystem
) -> tuple[TopicTable, GroupTable, ConsumerOffsets, GroupMembers]:
    topics = TopicTable(
        paths.topics, files, max_topics=config.max_topics, max_queues=config.max_queues
    )
    groups = GroupTable(paths.groups, files, max_groups=config.max_groups)
    offsets = ConsumerOffsets(paths.consumer_offsets, files, max_rows=config.max_offset_rows)
    members = GroupMembers(paths.group_members, files)
    for each in (topics, groups, offsets, members):
        each.load()
    return topics, groups, offsets, members


def close_parts(parts: StoreParts) -> None:
    """Let every file go; what was not flushed is rebuilt from the log at the next open. Raises
    the first OSError or StoreError, after all are closed."""
    faults: list[OSError | StoreError] = []
    for part in (parts.index, parts.queues, parts.log):
        try:
            if part is not None:
                part.close()
        except (OSError, StoreError) as error:
            faults.append(error)
    if faults:
        raise faults[0]
