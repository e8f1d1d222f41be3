"""Small files of an export become few: all rows, in the order of the log, whoever tries again."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes.log_builder import LogBuilder, varied
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.reading import log_spans
from tandemlog.logs.tasks.parquet_merge import (
    MergeTask,
    ParquetPart,
    groups_of,
    merge,
    merge_parts,
    merge_tasks,
)


def parts(folder: str, *sizes: int) -> list[ParquetPart]:
    return [ParquetPart(folder, f"part-{at:020d}.parquet", size) for at, size in enumerate(sizes)]


def test_neighbours_of_one_folder_are_put_together_up_to_the_target() -> None:
    a, b = parts("a", 30, 30, 50, 10, 120, 5), parts("b", 7)
    groups = list(groups_of([*b, *reversed(a)], 100))
    assert groups == [tuple(a[:2]), tuple(a[2:4])]
    assert list(groups_of(parts("a", 200, 200), 100)) == []
    assert list(groups_of(parts("a", 1, 2, 3), 100)) == [tuple(parts("a", 1, 2, 3))]


def test_tasks_are_of_about_one_size() -> None:
    groups = [tuple(parts(f"t{number}", 10 * number, 1)) for number in range(1, 9)]
    tasks = merge_tasks(Path("x"), groups, 3, "none")
    assert {group for task in tasks for group in task.groups} == set(groups)
    sizes = [sum(part.size for group in task.groups for part in group) for task in tasks]
    assert max(sizes) < 2 * min(sizes)
    assert merge_tasks(Path("x"), [], 3, "none") == []


def write(folder: Path, *counts: int) -> list[str]:
    names, row = [], 0
    for count in counts:
        names.append(f"part-{row:020d}.parquet")
        rows = pa.table({"n": pa.array(range(row, row + count), pa.int64())})
        pq.write_table(rows, folder / names[-1])
        row += count
    return names


def rows(folder: Path) -> list[int]:
    return [
        row
        for path in sorted(folder.iterdir())
        for row in pq.ParquetFile(path).read()["n"].to_pylist()
    ]


def test_rows_keep_their_order_and_the_small_files_go(tmp_path: Path) -> None:
    names = write(tmp_path, 3, 1, 5)
    merge(tmp_path, names, "zstd")
    assert [path.name for path in tmp_path.iterdir()] == [
        f"part-{0:020d}-{4:020d}.parquet",
    ]
    assert rows(tmp_path) == list(range(9))


@pytest.mark.parametrize("left", [0, 1, 2])
def test_an_attempt_that_stopped_after_its_file_was_there_is_finished(
    tmp_path: Path, left: int
) -> None:
    names = write(tmp_path, 3, 1, 5)
    kept = {name: (tmp_path / name).read_bytes() for name in names}
    merge(tmp_path, names, "none")
    for name in names[:left]:
        (tmp_path / name).write_bytes(kept[name])
    merge(tmp_path, names, "none")
    assert rows(tmp_path) == list(range(9))


def test_an_attempt_that_is_overtaken_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = write(tmp_path, 3, 1, 5)
    read = pq.ParquetFile.read
    calls: list[int] = []

    def overtaken(file: pq.ParquetFile) -> pa.Table:
        calls.append(1)
        if len(calls) == 1:
            merge(tmp_path, names, "none")
        return read(file)

    monkeypatch.setattr(pq.ParquetFile, "read", overtaken)
    merge(tmp_path, names, "none")
    assert rows(tmp_path) == list(range(9))


def test_files_that_are_gone_without_a_merged_one_are_an_error(tmp_path: Path) -> None:
    names = write(tmp_path, 3, 1)
    (tmp_path / names[1]).unlink()
    task = MergeTask(
        str(tmp_path.parent), (tuple(ParquetPart(tmp_path.name, n, 1) for n in names),), "none"
    )
    with pytest.raises(FileNotFoundError):
        merge_parts(task)
    assert [path.name for path in tmp_path.iterdir()] == names[:1]


def test_an_export_has_a_file_for_each_topic_and_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_spans, "LEAST_BYTES", 1_000)
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    store = builder.write()
    whole = ExportOptions(target_bytes=1 << 20)
    plain = export(InProcess(1), store, tmp_path / "plain", whole)
    # Many tasks, and a target that all of a folder's parts fit into.
    many = export(InProcess(20), store, tmp_path / "many", whole)
    assert len(list((tmp_path / "many" / "raw").iterdir())) > 10
    for name in ("plain", "many"):
        folders = {path.parent for path in (tmp_path / name / "messages").rglob("*")}
        for folder in folders:
            files = [path for path in folder.iterdir() if path.is_file()]
            assert len(files) <= 1
    assert many.summary["topics"] == plain.summary["topics"]
    files = [path for path in (tmp_path / "many").rglob("*.parquet") if path.is_file()]
    assert many.summary["files"] == len(files)
    for folder in (tmp_path / "plain" / "messages").glob("topic=*/day=*"):
        same = tmp_path / "many" / folder.relative_to(tmp_path / "plain")
        one, other = (pq.ParquetFile(next(each.iterdir())).read() for each in (folder, same))
        assert one["physical_offset"].equals(other["physical_offset"])
