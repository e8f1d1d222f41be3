"""A small store of several files to be damaged, killed and looked at again."""

from dataclasses import replace
from pathlib import Path

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.storage.recovery.recovery_report import RecoveryReport
from tandemlog_server.storage.tools.verify import verify

LOG = DIRECTORY / "commitlog"
QUEUE = DIRECTORY / "consumequeue" / "T" / "0"


def full(batches: int = 20, **settings: object) -> tuple[Bench, list[int]]:
    """A store of several files, persisted, not closed; and where each batch starts."""
    bench = Bench(replace(CONFIG, **settings))  # type: ignore[arg-type]
    starts = [
        bench.put(10, queue_id=number % 2, size=40).segments[0].physical_offset
        for number in range(batches)
    ]
    bench.settle()
    bench.store.persist()
    return bench, starts


def log_byte(offset: int) -> tuple[Path, int]:
    size = CONFIG.commit_log_file_size
    return LOG / f"{offset - offset % size:020d}", offset % size


def flip(bench: Bench, path: Path, position: int) -> None:
    bench.files.content(path)[position] ^= 0x10


def everything(bench: Bench) -> list[bytes]:
    return bench.bodies(queue_id=0) + bench.bodies(queue_id=1)


def assert_whole(bench: Bench) -> None:
    """The store holds what its log says, and goes on."""
    bench.put(3)
    bench.settle()
    before = everything(bench)
    bench.store.close()
    report = verify(bench.config, bench.files)
    assert [str(fault) for fault in report.faults] == []
    bench.open()
    assert everything(bench) == before


def text(report: RecoveryReport) -> str:
    return "\n".join(report.lines())
