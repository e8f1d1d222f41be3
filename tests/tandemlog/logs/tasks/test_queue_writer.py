"""The files of one queue follow RocketMQ's rules, also where the log's numbers are odd."""

from pathlib import Path

import numpy as np
import pytest

from fakes.plain_format import encode_unit
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_DTYPE
from tandemlog.logs.job_errors import PipelineError
from tandemlog.logs.tasks.queue_writer import QueueWriter, WrittenQueue

FILE = 100


def units_of(numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    units = np.zeros(len(numbers), UNIT_DTYPE)
    units["physical_offset"] = np.array(numbers) * 1000
    units["size"] = 7
    units["tags_code"] = -1
    return np.array(numbers, np.int64), units


def unit(number: int) -> bytes:
    return encode_unit(number * 1000, 7, -1)


def written(folder: Path, *batches: list[int]) -> tuple[WrittenQueue, dict[int, bytes]]:
    writer = QueueWriter(folder / "q", "T", 3, FILE)
    for batch in batches:
        writer.put(*units_of(batch))
    result = writer.close()
    return result, {int(path.name): path.read_bytes() for path in sorted((folder / "q").iterdir())}


def test_units_stand_at_their_numbers(tmp_path: Path) -> None:
    result, files = written(tmp_path, [0, 1, 2], [3, 4, 5, 6])
    assert list(files) == [0, 100]
    assert files[0] == b"".join(map(unit, range(5)))
    assert files[100] == unit(5) + unit(6) + bytes(60)
    assert (result.units, result.first, result.end) == (7, 0, 7)


def test_a_full_last_file_has_no_successor(tmp_path: Path) -> None:
    _, files = written(tmp_path, [0, 1, 2, 3, 4])
    assert list(files) == [0]


def test_a_queue_that_begins_later_is_pre_blank_up_to_there(tmp_path: Path) -> None:
    result, files = written(tmp_path, [12, 13])
    assert list(files) == [200]
    assert files[200] == PRE_BLANK * 2 + unit(12) + unit(13) + bytes(20)
    assert (result.first, result.end, result.lacking) == (12, 14, 0)


def behind(numbers: list[int], begin: int) -> tuple[np.ndarray, np.ndarray]:
    """Records from the log offset `begin` on."""
    offsets, units = units_of(numbers)
    units["physical_offset"] = begin + np.arange(len(numbers)) * 1000
    return offsets, units


@pytest.mark.parametrize("first", [0, 3, 5])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_queue_that_began_again_has_the_later_records(
    tmp_path: Path, first: int, cut: int
) -> None:
    writer = QueueWriter(tmp_path / "q", "T", 3, FILE)
    writer.put(*units_of(list(range(13))))
    numbers, units = behind(list(range(first, first + 4)), 50_000)
    writer.put(numbers[:cut], units[:cut])
    writer.put(numbers[cut:], units[cut:])
    result = writer.close()
    files = {int(path.name): path.read_bytes() for path in (tmp_path / "q").iterdir()}
    later = [encode_unit(50_000 + n * 1000, 7, -1) for n in range(4)]
    held = b"".join([*map(unit, range(first)), *later])
    assert b"".join(files[base] for base in sorted(files)) == held + bytes(-len(held) % FILE)
    assert (result.units, result.end) == (first + 4, first + 4)
    assert (result.deleted, result.repeated) == (13 - first, 0)


def test_a_damaged_number_begins_nothing(tmp_path: Path) -> None:
    for own_from, end in ((0, 9), (1 << 40, 1)):
        writer = QueueWriter(tmp_path / f"q{own_from}", "T", 3, FILE, own_from)
        writer.put(*units_of(list(range(9))))
        writer.put(*behind([0], 50_000))
        assert writer.close().end == end
    writer = QueueWriter(tmp_path / "q", "T", 3, FILE)
    writer.put(*units_of(list(range(9))))
    writer.put(*behind([4], 50_000))
    writer.put(*behind([10, 11], 60_000))
    result = writer.close()
    assert (result.end, result.repeated, result.lacking) == (12, 1, 1)


def test_the_first_of_a_repeated_number_counts(tmp_path: Path) -> None:
    result, files = written(tmp_path, [0, 1, 2], [1, 2, 3])
    assert files[0][:80] == b"".join(map(unit, range(4)))
    assert (result.units, result.repeated) == (4, 2)


def test_lacking_numbers_become_pre_blank(tmp_path: Path) -> None:
    result, files = written(tmp_path, [0, 3], [7])
    assert files[0] == unit(0) + PRE_BLANK * 2 + unit(3) + PRE_BLANK
    assert files[100] == PRE_BLANK * 2 + unit(7) + bytes(40)
    assert (result.units, result.lacking, result.end) == (3, 5, 8)


def test_an_absurd_number_is_an_error_and_no_gigabytes(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match=r"T/3: the record at 1125899906842624000 says .* damaged"
    ):
        written(tmp_path, [0, 1], [1 << 50])
