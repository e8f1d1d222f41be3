"""Which log this store holds: `tandemlog/log-identity.json`, a table of tandemlog's own.

    {"dataVersion": {...}, "logId": "<16 hex>",
     "terms": {"<epoch>-<start offset>": "<16 hex>", ...}}

The epoch table says where each term begins, the ids here which term it is (see log_history.py). A
master creates the id of a term before it writes the epoch. The file travels to the slaves as the
other tables do, so that all replicas answer the same; it comes beside the log, and until then the
newest term has no id there, which matches every id. An id belongs to an epoch and its start, so it
cannot be taken for that of another term with the same epoch.

Without the file, in a store of RocketMQ or of an older version, the terms are known by epoch and
start, and the next term gets an id.
"""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from tandemlog.format.files import store_json
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog.format.files.log_history import MAX_TERMS, LogHistory, LogTerm, id_of, id_text

from ..disk.file_system import FileSystem
from ..errors import CorruptStoreError
from .epoch_file import EpochFile
from .json_file import VERSION, Json, JsonTable, table

logger = logging.getLogger(__name__)

_LOG_ID = "logId"
_TERMS = "terms"


def random_id() -> int:
    """64 bits, never 0."""
    return secrets.randbits(64) or 1


class LogIdentity(JsonTable[None]):
    """See the module. Any thread may call."""

    def __init__(
        self,
        path: Path,
        files: FileSystem,
        epochs: EpochFile,
        new_id: Callable[[], int] = random_id,
    ) -> None:
        super().__init__(path, files)
        self._epochs = epochs
        self._fault = ""
        self._new_id = new_id
        self._log_id = 0
        self._ids: dict[EpochEntry, int] = {}
        self._known: tuple[EpochTable | None, LogHistory] = (None, LogHistory())

    def load(self) -> None:
        """A file that cannot be read counts as missing."""
        try:
            super().load()
        except CorruptStoreError as error:
            self._fault = f"{error}; it was taken for empty"
            logger.warning("%s", self._fault)
            self._publish(None)

    @property
    def note(self) -> str:
        """What had to be repaired while loading; empty if nothing was."""
        return self._fault or self._file.note

    @property
    def newest(self) -> tuple[int, int]:
        """Epoch and id of the newest term, as LogHistory has it; cheap enough for every pull."""
        return self.history.newest

    @property
    def history(self) -> LogHistory:
        """Of the log as it is now; its newest MAX_TERMS terms."""
        epochs, history = self._known
        if epochs is self._epochs.table:
            return history
        with self._lock:
            epochs = self._epochs.table
            history = LogHistory(
                self._log_id,
                tuple(
                    LogTerm(each.epoch, each.start_offset, self._ids.get(each, 0))
                    for each in epochs.entries[-MAX_TERMS:]
                ),
            )
            self._known = epochs, history
            return history

    def begin_term(self, epoch: int, start_offset: int, now_ms: int) -> None:
        """Make an id for a term that this node leads, and for the log if it has none; durable on
        return. Raises DiskFullError or StoreReadOnlyError, and changes nothing."""
        term = EpochEntry(epoch, start_offset)
        with self._lock:
            entries = self._epochs.table.entries
            ids = {each: self._ids[each] for each in entries if each in self._ids}
            ids[term] = self._new_id()
            if len(entries) == 1 and entries[0].epoch == 0:
                # the bytes of a store that RocketMQ wrote, which begin to count with this term
                ids.setdefault(entries[0], self._new_id())
            self._replace(self._log_id or self._new_id(), ids, now_ms)

    def begin_log(self, now_ms: int) -> None:
        """The log is empty and a new one; raises as `begin_term`."""
        with self._lock:
            self._replace(self._new_id(), {}, now_ms)

    def _replace(self, log_id: int, ids: dict[EpochEntry, int], now_ms: int) -> None:
        document = self._file.with_next_version(now_ms)
        document[_LOG_ID] = id_text(log_id)
        document[_TERMS] = {
            f"{each.epoch}-{each.start_offset}": id_text(term_id) for each, term_id in ids.items()
        }
        self._file.replace(document)
        self._publish(None)

    def _decode(self, document: Json) -> None:
        """The document itself is read."""

    def _publish(self, rows: None) -> None:
        """An id that cannot be read is not known, which only weakens comparisons."""
        document = self._file.document
        self._log_id = _id(document.get(_LOG_ID))
        ids = {}
        for name, value in table(document, _TERMS).items():
            epoch, _, start = name.partition("-")
            if epoch.isdecimal() and start.isdecimal():
                ids[EpochEntry(int(epoch), int(start))] = _id(value)
        self._ids = ids
        self._known = (None, LogHistory())


def encode_identity(history: LogHistory) -> bytes:
    """The file of a store whose log has this history."""
    terms = {f"{each.epoch}-{each.start_offset}": id_text(each.term_id) for each in history.terms}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
    document = {VERSION: version, _LOG_ID: id_text(history.log_id), _TERMS: terms}
    return store_json.dumps(document).encode()


def _id(value: object) -> int:
    try:
        return id_of(value)
    except ValueError:
        return 0
