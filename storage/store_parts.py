"""The parts that a store is made of, opened but not yet recovered: what recovery works on.

Files are opened in the order of their layers; this changes nothing in the log, the queues or the
index.
"""

from typing import TYPE_CHECKING

from tandemlog.format.files.queue_unit import DelayLevels

from .clock import SteadyClock
from .disk.file_system import FileSystem
from .dispatch.mending_source import MendingSource, RecordWitness
from .dispatch.reput import Dispatchers, ReputService
from .errors import StoreError
from .folds.delay_fold import DelayFold
from .folds.fold_file import FoldFile
from .folds.lease_fold import LeaseFold
from .folds.service_fold import ServiceFold
from .folds.transaction_fold import TransactionFold
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
from .state_files.mend_note import MendNote
from .state_files.producer_begins import ProducerBeginsFile
from .state_files.queue_begins import QueueBeginsFile
from .state_files.recovery_point import RecoveryPointFile
from .state_files.seen_time import SeenTime
from .state_files.store_checkpoint import StoreCheckpoint
from .state_files.time_steps import TimeSteps
from .stats import StoreStats
from .store_paths import StorePaths

if TYPE_CHECKING:
    from .folds.fold import Fold


class StoreParts:
    """See the module; `config` has the sizes of the files on disk, `paths` where they are. Raises
    StoreLayoutError or CorruptStoreError if files cannot be used at all."""

    def __init__(self, geometry: Geometry, files: FileSystem, clock: SteadyClock) -> None:
        self.geometry, self.files, self.clock = geometry, files, clock
        self.config = config = geometry.adopted()
        self.paths = paths = StorePaths(config.directory)
        files.make_directory(paths.own)
        self._load_tables()
        self.log = log = CommitLog(config, files, clock)
        self.confirmed, self.reputed = Position("confirmed"), Position("reputed")
        self.queue_table = QueueTable()
        self.queues = ConsumeQueueStore(
            paths.queues, files, self.queue_table,
            file_size=config.queue_file_size, workshop=paths.own,
        )  # fmt: skip
        self.producers = ProducerTable(
            kept=config.producer_sequences_kept,
            limit=config.producers_kept,
            safe_offset=lambda: min(log.flushed.value, self.confirmed.value),
            monotonic=clock.monotonic,
        )
        self._open_folds()
        self.source = MendingSource(
            log,
            lambda: self.queues.next_offset,
            delay_levels=DelayLevels(config.delay_levels),
            index=config.index_enabled,
            index_tags=config.index_tags,
            property_crc=config.property_crc,
        )
        self.stats = StoreStats(clock.monotonic())
        self.stats.flush_latency, self.queues.traffic = log.flush_latency, self.stats.traffic
        self.reader = StoreReader(
            log, self.queues, self.queue_table, self.confirmed, self.stats,
            property_crc=config.property_crc, time_steps=self.time_steps,
        )  # fmt: skip
        self.index = self.reader.index = self._open_index()
        self.dispatchers = Dispatchers(
            self.queue_table, self.queues, self.folds, self.index, self.time_steps
        )
        self.reput = ReputService(
            self.source, self.dispatchers, self.confirmed, self.reputed, clock
        )
        self.source.without_queues = lambda: self.topics.in_batch_queues
        self.queues.mender.records = RecordWitness(log, lambda: self.epochs.table)
        # a queue that a reader has found damaged is rebuilt at once
        self.reader.on_damage = self.queues.on_damage = self.reput.wake
        self.recovery_point = RecoveryPointFile(paths.recovery_point, files)
        self.queue_begins = QueueBeginsFile(paths.queue_begins, files)
        self.producer_begins = ProducerBeginsFile(paths.producer_begins, files)
        self.mend_note = MendNote(paths.mend_note, files)
        self.mend_note.load()

    def _open_folds(self) -> None:
        paths, files, monotonic = self.paths, self.files, self.clock.monotonic
        self.service_folds = self._service_folds()
        self.producer_file = FoldFile(self.producers, paths.producers, files, monotonic)
        service_files = []
        for fold in self.service_folds:
            file = FoldFile(fold, paths.folds / fold.name, files, monotonic)
            if fold is self.transactions:
                file.before_write = self._save_offsets
            fold.saved = file.read
            service_files.append(file)
        self.folds: tuple[Fold, ...] = (self.producers, *self.service_folds)
        self.fold_files = (self.producer_file, *service_files)

    def _save_offsets(self) -> None:
        self.consumer_offsets.save_unsafe(self.clock.now_ms())

    def _service_folds(self) -> tuple[ServiceFold, ...]:
        self.delays, self.leases = DelayFold(), LeaseFold()
        self.transactions = TransactionFold()
        self.transactions.on_offsets = self.consumer_offsets.set_floors
        self.transactions.on_all_offsets = self.consumer_offsets.replace_floors
        return (self.delays, self.leases, self.transactions)

    def _load_tables(self) -> None:
        config, paths, files = self.config, self.paths, self.files
        self.topics = TopicTable(
            paths.topics, files, max_topics=config.max_topics, max_queues=config.max_queues
        )
        self.groups = GroupTable(paths.groups, files, max_groups=config.max_groups)
        self.consumer_offsets = ConsumerOffsets(
            paths.consumer_offsets, files, max_rows=config.max_offset_rows
        )
        self.group_members = GroupMembers(paths.group_members, files)
        self.epochs = EpochFile(paths.epochs, files)
        self.checkpoint = StoreCheckpoint(paths.checkpoint, files)
        self.log_identity = LogIdentity(paths.log_identity, files, self.epochs)
        for table in (self.topics, self.groups, self.consumer_offsets, self.group_members):
            table.load()
        self.epochs.load()
        self.checkpoint.load()
        self.log_identity.load()
        self.seen_time = SeenTime(paths.seen_time, files, self.clock)
        self.time_steps = TimeSteps(paths.time_steps, files)
        self.seen_time.load()
        self.time_steps.load()

    def _open_index(self) -> IndexService | None:
        config, paths = self.config, self.paths
        if not config.index_enabled:
            return None
        return IndexService(
            paths.index, paths.own, self.files, self.clock,
            slots=config.index_slots, entries=config.index_entries,
            time_of=self.reader.store_timestamp, time_steps=self.time_steps.meet,
        )  # fmt: skip

    def close(self) -> None:
        """Let every file go; what was not flushed is rebuilt from the log at the next open. Raises
        the first OSError or StoreError, after all are closed."""
        faults: list[OSError | StoreError] = []
        for part in (self.index, self.queues, self.log):
            try:
                if part is not None:
                    part.close()
            except (OSError, StoreError) as error:
                faults.append(error)
        if faults:
            raise faults[0]
