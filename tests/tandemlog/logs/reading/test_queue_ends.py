"""What the newest units of a store's queues say about its log."""

from pathlib import Path

from fakes.plain_format import encode_unit
from tandemlog.format.files.queue_unit import PRE_BLANK
from tandemlog.logs.reading.queue_ends import QueueEnds, queue_ends


def put(store: Path, topic: str, queue: str, base: int, data: bytes, size: int = 100) -> None:
    folder = store / "consumequeue" / topic / queue
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020d}").write_bytes(data.ljust(size, b"\0"))


def test_the_furthest_unit_of_all_queues(tmp_path: Path) -> None:
    put(tmp_path, "A", "0", 0, b"".join(encode_unit(n * 10, 10, 0) for n in range(5)))
    put(tmp_path, "A", "0", 100, encode_unit(900, 50, 0))
    put(tmp_path, "B", "1", 200, PRE_BLANK * 2 + encode_unit(700, 20, 0))
    put(tmp_path, "B", "notes", 0, b"")
    found = queue_ends(tmp_path)
    assert (found.log_end, found.topic, found.queue_id, found.queue_offset) == (950, "A", 0, 5)
    assert found.file_size == 100
    assert found.log_begin == 0


def test_queues_without_units_say_nothing(tmp_path: Path) -> None:
    assert queue_ends(None) == QueueEnds()
    assert queue_ends(tmp_path) == QueueEnds()
    put(tmp_path, "A", "0", 0, b"")
    put(tmp_path, "B", "0", 0, PRE_BLANK * 3)
    assert queue_ends(tmp_path) == QueueEnds(file_size=100)


def test_an_empty_last_file_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "A", "0", 0, b"".join(encode_unit(n * 10, 10, 0) for n in range(5)))
    put(tmp_path, "A", "0", 100, b"")
    assert queue_ends(tmp_path).log_end == 50
