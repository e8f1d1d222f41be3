from pathlib import Path

import pytest

from tandemlog.format.record.record import encode_blank, encode_record
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.mapped_file_queue import MappedFileQueue
from tandemlog_server.storage.log.log_scanner import LogScanner
from tandemlog_server.storage.log.record_search import whole_but_for_a_length, whole_but_for_head

DIRECTORY = Path("/store/commitlog")
FILE = 4096


def log(count: int = 30) -> tuple[MemoryFiles, list[int], int]:
    """A log of `count` records over several files: where each starts, and the end."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    data, starts = bytearray(), []
    for number in range(count):
        record = encode_record(
            topic="T", body=b"x" * 200, queue_offset=number, physical_offset=0, store_timestamp=7
        )
        room = FILE - len(data) % FILE
        if len(record) + 8 > room:
            data += encode_blank(room).ljust(room, b"\0")
        starts.append(len(data))
        data += encode_record(
            topic="T",
            body=b"x" * 200,
            queue_offset=number,
            physical_offset=len(data),
            store_timestamp=1000 + number,
        )
    end = len(data)
    data += bytes(-len(data) % FILE)
    for base in range(0, len(data), FILE):
        files.atomic_replace(DIRECTORY / f"{base:020d}", data[base : base + FILE])
    return files, starts, end


def change(files: MemoryFiles, offset: int, data: bytes) -> None:
    handle = files.open(DIRECTORY / f"{offset - offset % FILE:020d}")
    files.pwrite(handle, data, offset % FILE)
    files.close(handle)


def flip(files: MemoryFiles, offset: int) -> None:
    path = DIRECTORY / f"{offset - offset % FILE:020d}"
    change(files, offset, bytes([files.read_file(path)[offset % FILE] ^ 0x10]))


def scan(files: MemoryFiles, start: int = 0, durable: int = 0, crc: bool = True) -> LogScanner:
    mapped = MappedFileQueue(files, DIRECTORY, FILE, read_only=True)
    return LogScanner(mapped, start, durable=durable, check_crc=crc).run()


def test_a_whole_log_ends_at_its_last_record() -> None:
    files, _, end = log()
    found = scan(files)
    assert (found.records, found.end, found.at_zeros, found.damages) == (30, end, True, [])
    assert found.last_store_timestamp == 1029


def test_a_scan_may_start_anywhere() -> None:
    files, starts, end = log()
    found = scan(files, starts[20])
    assert (found.records, found.end) == (10, end)
    assert scan(files, end).records == 0


@pytest.mark.parametrize("position", [0, 5, 10, 30, 100, 200])
def test_a_bad_record_above_what_was_durable_is_the_end(position: int) -> None:
    files, starts, _ = log()
    flip(files, starts[20] + position)
    found = scan(files)
    assert (found.records, found.end) == (20, starts[20])
    assert not found.at_zeros
    assert found.damages == []


@pytest.mark.parametrize("position", [0, 5, 10, 30, 100, 200])
def test_a_bad_record_below_what_was_durable_is_damage(position: int) -> None:
    files, starts, end = log()
    flip(files, starts[20] + position)
    found = scan(files, durable=end)
    assert (found.records, found.end) == (29, end)
    (damage,) = found.damages
    assert (damage.start, damage.end) == (starts[20], starts[21])
    assert damage.file.endswith(f"{starts[20] - starts[20] % FILE:020d}")


def test_a_hole_of_zeros_over_a_files_end_is_damage() -> None:
    files, starts, end = log()
    last_of_file = max(start for start in starts if start < FILE)
    change(files, last_of_file, bytes(FILE - last_of_file))
    found = scan(files, durable=end)
    assert found.records == 29
    assert found.end == end
    assert [(damage.start, damage.end) for damage in found.damages] == [(last_of_file, FILE)]


def test_nothing_good_after_the_damage_is_said_so() -> None:
    files, starts, end = log()
    flip(files, starts[29] + 100)
    found = scan(files, durable=end)
    assert found.end == starts[29]
    assert (found.damages[0].start, found.damages[0].end) == (starts[29], end)
    assert "no record follows" in found.reason


def test_bytes_of_an_older_life_are_no_records() -> None:
    files, starts, end = log()
    older = encode_record(topic="T", body=b"y" * 100, physical_offset=end + 77)
    change(files, end, older)
    found = scan(files)
    assert found.end == end
    assert "physical_offset" in found.reason
    assert scan(files, durable=starts[29]).damages == []


def test_the_crc_is_left_out_on_request() -> None:
    files, starts, end = log()
    flip(files, starts[20] + 100)
    assert scan(files, crc=False).end == end


@pytest.mark.parametrize("durable", [False, True])
def test_a_topic_that_names_no_folder_is_damage(durable: bool) -> None:
    files, starts, end = log()
    # the topic's one byte stands before the two of the properties' length
    change(files, starts[6] - 3, b"/")
    found = scan(files, durable=end if durable else 0)
    if durable:
        assert [(each.start, each.end) for each in found.damages] == [(starts[5], starts[6])]
        assert (found.records, found.end) == (29, end)
    else:
        assert (found.records, found.end) == (5, starts[5])
        assert "is not a valid folder name" in found.reason


@pytest.mark.parametrize("blank", [b"", encode_blank(100).ljust(100, b"\0")])
def test_a_damaged_head_is_told_also_in_the_last_record_of_a_file(blank: bytes) -> None:
    record = encode_record(topic="T", body=b"b" * 50, queue_id=3, physical_offset=700)
    damaged = bytearray(record + blank)
    damaged[2] ^= 1  # of its size
    found = whole_but_for_head(bytes(damaged), 700)
    assert found is not None
    assert (found.topic, found.queue_id, found.body) == ("T", 3, b"b" * 50)


@pytest.mark.parametrize("born_host", ["127.0.0.1:5", "[::1]:5"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("body", [b"b" * 50, b""])
def test_a_turned_bit_of_a_length_is_told(born_host: str, version: int, body: bytes) -> None:
    record = encode_record(
        topic="orders", body=body, queue_id=3, physical_offset=700, born_host=born_host,
        version=version, properties=b"TAGS\x01a\x02",
    )  # fmt: skip
    length = 84 + 12 * born_host.startswith("[")
    topic = length + 4 + len(body)
    properties = topic + version + len("orders")
    places = [
        *range(length, length + 4),
        *range(topic, topic + version),
        properties,
        properties + 1,
    ]
    for place, bit in [(each, 1 << n) for each in places for n in range(8)] + [(39, 16), (39, 32)]:
        damaged = bytearray(record)
        damaged[place] ^= bit
        found = whole_but_for_a_length(bytes(damaged), 700)
        assert found is not None, (place, bit)
        assert (found.topic, found.queue_id, found.body) == ("orders", 3, body), (place, bit)
        damaged[4] ^= 1
        assert whole_but_for_a_length(bytes(damaged), 700) is None
