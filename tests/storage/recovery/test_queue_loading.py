"""Queues that are found on disk: ours with a checkpoint, foreign ones without."""

from pathlib import Path

import numpy as np
import pytest

from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT, UNIT_SIZE
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.inspect.geometry import queue_directories
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.queues.queue_checkpoint import DAMAGED_END, QueueCheckpoint
from tandemlog_server.storage.queues.queue_table import QueueTable
from tandemlog_server.storage.recovery.queue_loading import LoadContext, QueueFindings, load_queues

ROOT = Path("/store/consumequeue")
UNITS = 5
FILE = UNITS * UNIT_SIZE


class Disk:
    """A queue T/0 written by somebody; `store` is ours after load."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_directory(ROOT)
        self.table = QueueTable()
        self.store = ConsumeQueueStore(ROOT, self.files, self.table, file_size=FILE)

    def write(self, content: bytes, first: int = 0) -> None:
        """Units from unit `first` on, in files of full length."""
        directory = ROOT / "T" / "0"
        self.files.make_directory(directory)
        content = bytes(first % UNITS * UNIT_SIZE) + content
        base = (first - first % UNITS) * UNIT_SIZE
        for at in range(0, max(len(content), 1), FILE):
            handle = self.files.open(directory / offset_file_name(base + at), create=True)
            self.files.pwrite(handle, content[at : at + FILE].ljust(FILE, b"\0"), 0)
            self.files.close(handle)

    def load(
        self,
        end: int | None,
        log_offset: int = 0,
        *,
        log_end: int = 10_000,
        clean: bool = True,
        foreign: bool = False,
        log_start: int = 0,
    ) -> QueueFindings:
        ends = {} if end is None else {"T": {0: end}}
        checkpoint = None if foreign else QueueCheckpoint(log_offset, ends)
        context = LoadContext(log_start, log_end, min(log_offset, log_end), checkpoint, clean)
        directories = queue_directories(self.files, ROOT)
        return load_queues(self.store, self.table, directories, context)

    @property
    def end(self) -> int:
        return self.store.max_offset(self.table.get("T", 0))

    def content(self) -> bytes:
        directory = ROOT / "T" / "0"
        names = self.files.listdir(directory)
        return b"".join(bytes(self.files.content(directory / name)) for name in names)


def units(*physical: int) -> bytes:
    return b"".join(UNIT.pack(each, 10, 0) for each in physical)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_our_own_queue_is_taken_as_the_checkpoint_says(disk: Disk) -> None:
    disk.write(units(0, 10, 20, 30, 40, 50, 60))
    findings = disk.load(7, 70)
    assert (findings.queues, findings.units) == (1, 7)
    assert not findings.cut
    assert not findings.damaged
    assert disk.end == 7
    assert disk.store.next_offset == 70


def test_what_was_written_after_the_checkpoint_is_cut(disk: Disk) -> None:
    disk.write(units(0, 10, 20, 30, 40, 50, 60))
    findings = disk.load(3, 30, clean=False)
    assert findings.cut == ["T/0 at 3"]
    assert disk.end == 3
    assert disk.content() == units(0, 10, 20) + bytes(2 * UNIT_SIZE)


def test_a_queue_made_after_the_checkpoint_is_made_again(disk: Disk) -> None:
    disk.write(PRE_BLANK * 2 + units(100), first=5)
    findings = disk.load(None, 100, clean=False)
    assert findings.cut == ["T/0 at 0"]
    assert disk.end == 0
    assert disk.content() == b""


def test_a_log_that_became_shorter_takes_its_units_along(disk: Disk) -> None:
    disk.write(units(0, 10, 20, 30, 40, 50, 60))
    findings = disk.load(7, 70, log_end=45, clean=False)
    assert not findings.damaged
    assert disk.end == 5
    assert disk.store.next_offset == 45


@pytest.mark.parametrize(
    ("content", "end", "reason"),
    [
        (units(0, 10), 6, "hold 0..5"),
        (units(0, 10), 3, "unit 2"),
        (units(0, 10, 200), 3, "unit 2"),
        (units(0, 10, 20), DAMAGED_END, "before the last stop"),
    ],
)
def test_less_or_other_than_the_checkpoint_says_is_damage(
    disk: Disk, content: bytes, end: int, reason: str
) -> None:
    disk.write(content)
    findings = disk.load(end, 100)
    assert reason in findings.damaged["T/0"]
    assert disk.store.damaged


@pytest.mark.parametrize("directory", [True, False])
def test_missing_files_are_damage(disk: Disk, directory: bool) -> None:
    if directory:
        disk.files.make_directory(ROOT / "T" / "0")
    findings = disk.load(4, 100)
    assert "missing" in findings.damaged["T/0"]
    assert disk.store.damaged


def test_a_file_missing_in_the_middle_is_damage(disk: Disk) -> None:
    disk.write(units(*range(0, 120, 10)))
    disk.files.unlink(ROOT / "T" / "0" / offset_file_name(FILE))
    assert "missing" in disk.load(12, 120).damaged["T/0"]
    assert "missing" in disk.load(None, foreign=True).damaged["T/0"]


def test_files_missing_at_the_start_are_damage_while_the_log_has_its_own(disk: Disk) -> None:
    disk.write(units(*range(50, 120, 10)), first=5)
    assert "before" in disk.load(None, foreign=True).damaged["T/0"]


def test_a_file_at_an_odd_place_is_damage_of_ours_and_an_error_of_others(disk: Disk) -> None:
    disk.write(units(*range(0, 40, 10)))
    directory = ROOT / "T" / "0"
    disk.files.rename(
        directory / offset_file_name(0), directory / offset_file_name(FILE + UNIT_SIZE)
    )
    disk.write(units(*range(0, 40, 10)))
    assert "does not begin 100 bytes after" in disk.load(12, 120).damaged["T/0"]
    with pytest.raises(StoreLayoutError, match="does not begin 100 bytes after"):
        disk.load(None, foreign=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 12])
def test_the_end_of_a_foreign_queue_is_found(disk: Disk, count: int, clean: bool) -> None:
    disk.write(units(*range(0, 10 * count, 10)))
    findings = disk.load(None, 5000, foreign=True, clean=clean)
    assert not findings.damaged
    assert disk.end == count
    assert disk.store.next_offset == 5000


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_last_file_is_no_trouble(disk: Disk, clean: bool) -> None:
    disk.write(units(0, 10, 20, 30, 40))
    disk.write(b"", first=5)
    disk.load(None, foreign=True, clean=clean)
    assert disk.end == 5


def test_pre_blank_units_of_a_foreign_queue_count(disk: Disk) -> None:
    disk.write(PRE_BLANK * 3 + units(100, 110), first=5)
    disk.load(None, foreign=True, clean=False, log_start=100)
    dense = disk.table.get("T", 0)
    assert (disk.store.min_offset(dense), disk.end) == (8, 10)


def test_a_crashed_foreign_queue_ends_at_its_first_bad_unit(disk: Disk) -> None:
    disk.write(units(0, 10, 20) + bytes(UNIT_SIZE) + units(40, 50))
    disk.load(None, foreign=True, clean=False)
    assert disk.end == 3
    assert not any(disk.content()[3 * UNIT_SIZE :])


def test_a_crashed_foreign_queue_ends_with_its_log(disk: Disk) -> None:
    disk.write(units(0, 10, 20, 30, 40, 50))
    disk.load(None, foreign=True, clean=False, log_end=25)
    assert disk.end == 3


def test_a_foreign_queue_in_disorder_is_damaged(disk: Disk) -> None:
    disk.write(units(0, 20, 10, 30))
    findings = disk.load(None, foreign=True, clean=False)
    assert "point upwards" in findings.damaged["T/0"]


def test_names_that_are_no_queues_are_left_alone(disk: Disk) -> None:
    disk.files.make_directory(ROOT / "T" / "notes")
    disk.write(units(0))
    assert disk.load(1, 10).queues == 1
    assert np.count_nonzero(disk.store.ends()) == 1
