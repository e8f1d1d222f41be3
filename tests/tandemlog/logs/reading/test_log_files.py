"""Which files a log has, what length they should have, what is missing."""

from pathlib import Path

import pytest

from tandemlog.format.files.names import offset_file_name
from tandemlog.logs.job_errors import StoreLayoutError, StoreMissingError
from tandemlog.logs.reading.log_files import find_log
from tandemlog.logs.reading.log_source import open_store


def make(folder: Path, lengths: dict[int, int]) -> Path:
    log = folder / "commitlog"
    log.mkdir()
    for base, length in lengths.items():
        (log / offset_file_name(base)).write_bytes(bytes(length))
    return folder


def test_a_store_and_its_log_folder_are_the_same_log(tmp_path: Path) -> None:
    store = make(tmp_path, {0: 100, 100: 100})
    (store / "commitlog" / "notes.txt").write_text("no log file")
    by_store, by_log = find_log(store), open_store(f"file://{store / 'commitlog'}").files
    assert by_store == by_log
    assert [file.base for file in by_store.files] == [0, 100]
    assert by_store.file_size == 100
    assert by_store.store == str(store)


@pytest.mark.parametrize(
    ("lengths", "size", "missing", "short"),
    [
        ({0: 100, 100: 100, 300: 100}, 100, [(200, 300)], []),
        ({0: 40, 100: 100, 200: 100}, 100, [], [0]),
        ({0: 100, 100: 40}, 100, [], [100]),
        ({200: 100}, 100, [], []),
        ({0: 100, 100: 100, 200: 0}, 100, [], []),
        ({0: 100, 300: 100}, 100, [(100, 300)], []),
    ],
)
def test_what_is_missing_or_cut_off(
    tmp_path: Path,
    lengths: dict[int, int],
    size: int,
    missing: list[tuple[int, int]],
    short: list[int],
) -> None:
    files = find_log(make(tmp_path, lengths))
    assert files.file_size == size
    assert files.missing() == missing
    assert [file.base for file in files.short()] == short


def test_an_empty_log_has_no_files(tmp_path: Path) -> None:
    files = find_log(make(tmp_path, {}))
    assert files.files == ()
    assert files.start == 0


def test_what_is_no_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match="is not a folder"):
        find_log(tmp_path / "nothing")
    with pytest.raises(StoreMissingError, match="20 digits"):
        find_log(tmp_path)


def test_files_that_overlap_or_are_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreLayoutError, match="follow"):
        find_log(make(tmp_path, {0: 100, 100: 100, 150: 100}))


def test_a_path_is_known_for_every_offset(tmp_path: Path) -> None:
    files = find_log(make(tmp_path, {100: 100, 200: 100}))
    assert files.path_of(250).endswith(offset_file_name(200))
    assert files.path_of(1234).endswith(offset_file_name(1200))
    assert files.find(99) is None
