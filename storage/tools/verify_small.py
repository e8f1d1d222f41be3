"""The small files of a store that an open reads, for verify, each checked as far as possible.

    tandemlog/*.json, *Checkpoint     a checksum
    tandemlog/folds/*                 a checksum
    tandemlog/log-identity.json       JSON: an open works without it
    tandemlog/replication.json        its own shape: no checksum, an operator may correct it
    config/*.json                     its own shape: JSON, valid names, possible numbers
    checkpoint                        times and offsets that the log has; nothing behind them
    lock, abort, fsync-failed         one of the texts that are written into them

RocketMQ's JSON has no checksum, so a digit that changed into another one is not detected.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tandemlog.format.constants import stored_name_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.files.checkpoint import CHECKPOINT_SIZE, decode_checkpoint
from tandemlog.format.files.epochs import decode_epochs
from tandemlog.format.files.names import names_a_folder

from ..disk.checked_json import decode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import backup_of, read_small
from ..errors import StoreError
from ..folds.snapshot_form import check_form
from ..index.index_state import decode_index_state
from ..inspect.geometry import CONFIG_WAY_OUT, config_in_rocksdb
from ..metadata.json_file import Json, parse
from ..producers.producer_table import ProducerTable
from ..state_files.fsync_flag import LOWERED, RAISED
from ..state_files.lock_file import LOCK_TEXT
from ..state_files.recovery_point import RecoveryPointFile
from ..state_files.recovery_point import decode as decode_recovery_point
from ..store_paths import StorePaths
from .faults import Fault

MOST_QUEUES: Final = 65_536
REPLICATION: Final = "replication.json"
"""The node's, which a store does not open (ha/replication_file.py)."""
_SLACK_MS: Final = 24 * 3_600_000
_LONGS: Final = 6


def small_faults(
    paths: StorePaths, files: FileSystem, *, newest_time: int, log_end: int
) -> Iterator[Fault]:
    """What is wrong with them; `newest_time` (ms) is the newest store time in the log, 0 for
    none, and `log_end` where the log ends."""
    checks: list[tuple[Path, Callable[[bytes], object]]] = [
        (paths.lock, _one_of(b"", LOCK_TEXT)),
        (paths.abort, _process_id),
        (paths.fsync_flag, _one_of(b"", LOWERED, RAISED)),
        (paths.checkpoint, lambda data: _checkpoint(data, newest_time, log_end)),
        (paths.recovery_point, decode_recovery_point),
        (paths.index_state, decode_index_state),
        (paths.producers, ProducerTable(kept=1, safe_offset=lambda: 0).restore),
        (paths.own / REPLICATION, _replication),
        (paths.log_identity, parse),
        (paths.producer_begins, ProducerTable(kept=1, safe_offset=lambda: 0).restore),
        *((paths.folds / name, check_form) for name in files.listdir(paths.folds)),
    ]
    backed_up: list[tuple[Path, Callable[[bytes], object]]] = [
        (paths.epochs, decode_epochs),
        (paths.topics, _topics),
        (paths.groups, _groups),
        (paths.consumer_offsets, _consumer_offsets),
    ]
    for path, check in backed_up:
        checks += [(path, check), (backup_of(path), check)]
    checked = {path for path, _ in checks}
    checks += [
        (paths.own / name, decode_checked)
        for name in files.listdir(paths.own)
        if name.endswith(".json") and paths.own / name not in checked
    ]
    for path, check in checks:
        fault = _fault_of(files, path, check)
        if fault is not None:
            yield fault
    offsets = paths.consumer_offsets
    folder = config_in_rocksdb(files, paths)
    if folder is not None and _has_nothing(files, offsets):
        yield Fault(str(folder), 0, CONFIG_WAY_OUT)
    for path in (paths.topics, paths.groups, offsets):
        if _has_nothing(files, path) and not _has_nothing(files, backup_of(path)):
            yield Fault(str(path), 0, f"it is missing or empty: {path.name}.bak is taken instead")
    point = RecoveryPointFile(paths.recovery_point, files).load()
    gone = all(_has_nothing(files, path) for path in (offsets, backup_of(offsets)))
    if gone and (files.status(offsets) is not None or (point is not None and point.offsets)):
        reason = "it is missing or empty, and so is its .bak: the groups' offsets are lost"
        yield Fault(str(offsets), 0, reason)


def _has_nothing(files: FileSystem, path: Path) -> bool:
    try:
        data = read_small(files, path)
    except OSError:
        return False  # named already
    return data is None or not data.strip(b" \t\r\n\0")


def _fault_of(files: FileSystem, path: Path, check: Callable[[bytes], object]) -> Fault | None:
    try:
        data = read_small(files, path)
        if data is not None:
            check(data)
    except _WrongError as error:
        return Fault(str(path), error.position, f"byte {error.position}: {error.reason}")
    except (FormatError, StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Fault(str(path), 0, f"it is damaged: {error}")
    except OSError as error:
        return Fault(str(path), 0, f"it cannot be read: {error.strerror}")
    return None


class _WrongError(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def _one_of(*texts: bytes) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        if data not in texts:
            raise _WrongError(0, f"it says {data[:16]!r}, not {texts[-1]!r}")

    return check


def _process_id(data: bytes) -> None:
    if data.strip() and not data.strip().isdigit():
        raise _WrongError(0, f"it says {data[:16]!r}, which is not a process id")


def _checkpoint(data: bytes, newest_time: int, log_end: int) -> None:
    if len(data) < CHECKPOINT_SIZE:
        raise _WrongError(len(data), f"it ends here, and has {CHECKPOINT_SIZE} bytes")
    values = decode_checkpoint(data)
    times = (values.physic_msg_timestamp, values.logics_msg_timestamp, values.index_msg_timestamp)
    for number, time in enumerate(times):
        if time < 0 or (newest_time and time > newest_time + _SLACK_MS):
            raise _WrongError(
                8 * number, f"a time of {time}; the newest record was stored at {newest_time}"
            )
    offsets = (
        values.master_flushed_offset,
        values.confirm_phy_offset,
        values.logics_physical_offset,
    )
    for number, offset in enumerate(offsets, len(times)):
        # the first of them is of another node
        if offset < 0 or (number > len(times) and log_end and offset > log_end):
            raise _WrongError(8 * number, f"an offset of {offset}; the log ends at {log_end}")
    stray = next((at for at in range(8 * _LONGS, len(data)) if data[at]), -1)
    if stray >= 0:
        raise _WrongError(stray, "there are bytes where nothing is ever written")


def _replication(data: bytes) -> None:
    document = parse(data)
    record = document["in_sync"]
    if not isinstance(record, dict) or not isinstance(record["members"], list):
        raise FormatError("in_sync has no members")
    for name in ("cluster_id", "node_id", "incarnation"):
        if not isinstance(document[name], str) or not document[name]:
            raise FormatError(f"{name} is not a valid name")
    epochs = document["accepted_epoch"], record["epoch"], record["version"]
    if not all(isinstance(number, int) and number >= 0 for number in epochs):
        raise FormatError(f"an epoch is not valid: {epochs}")


# ---- config/*.json


def _document(data: bytes, *tables: str) -> tuple[Json, ...]:
    if not data.strip(b" \t\r\n\0"):
        return tuple({} for _ in tables)
    document = parse(data)
    rows = []
    for name in tables:
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise FormatError(f"{name} is not a table")
        rows.append({str(key): value for key, value in table.items()})
    return tuple(rows)


def _topics(data: bytes) -> None:
    for name, topic in _document(data, "topicConfigTable")[0].items():
        _name_is(name, topic, "topicName")
        for member in ("readQueueNums", "writeQueueNums"):
            _number(name, topic, member, MOST_QUEUES)
        _number(name, topic, "perm", 15)


def _groups(data: bytes) -> None:
    for name, group in _document(data, "subscriptionGroupTable")[0].items():
        _name_is(name, group, "groupName")


def _name_is(name: str, entry: object, member: str) -> None:
    fault = stored_name_fault(name)
    if fault is not None:
        raise FormatError(f"{name!r}: {fault}")
    if not isinstance(entry, dict) or entry.get(member) != name:
        raise FormatError(f"{name!r}: its {member} is another")


def _number(name: str, entry: object, member: str, most: int) -> None:
    value = entry.get(member) if isinstance(entry, dict) else None
    if not isinstance(value, int) or not 0 <= value <= most:
        raise FormatError(f"{name!r}: {member} {value!r} is no number of 0..{most}")


def _consumer_offsets(data: bytes) -> None:
    for name, offsets in _document(data, "offsetTable")[0].items():
        topic, at, group = name.rpartition("@")
        if not at or not names_a_folder(topic) or not group:
            raise FormatError(f"{name!r} is no topic@group")
        if not isinstance(offsets, dict):
            raise FormatError(f"{name!r}: its offsets are no table")
        for queue_id, offset in offsets.items():
            if not str(queue_id).isdigit() or not isinstance(offset, int) or offset < -1:
                raise FormatError(f"{name!r}: {queue_id!r}: {offset!r} is no queue and its offset")
