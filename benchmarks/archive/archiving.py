"""What an archive costs puts, what it moves for new data, and pulls below the log's begin.

Two nodes, one with an archive in a folder: send_many and send in turns. Then the archive is at
rest, and a hundredth of its size comes to it: the objects that are new. Last, all messages of a log
of which retention has left one file, pulled through a node from the archive, beside the same from a
node that has its files.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import Figure, bring_in_memory, medians_in_turns
from benchmarks.harness.nodes import cluster
from benchmarks.harness.pulls import BODY, COUNT, fill, rate
from benchmarks.harness.puts import send_many_rate, send_rate
from benchmarks.harness.workload import BODY_BYTES
from tandemlog.archive.archive_reader import newest_manifest
from tandemlog.archive.folder_store import FolderStore
from tandemlog.memory import keep_freed_memory
from tandemlog_server.cli.local.local_cluster import LocalCluster

TOPICS = 64
RUNS = 5
SINGLE = 100_000
FILE_BYTES = 32 << 20
"""Of a log that retention deletes."""
MB = 1e6
PATIENCE_S = 300.0
QUIET_S = 12.0
"""No manifest for so long: two intervals of an archiver."""


def with_archive(settings: str, url: Path, more: str = "") -> str:
    return f'{settings}\n[archive]\nurl = "{url}"\n{more}'


def at_rest(archive: FolderStore) -> int:
    """Wait until nothing new comes: where the archive ends."""
    newest, since, began = None, time.monotonic(), time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        found = newest_manifest(archive)
        if found is not None and found[0] == newest and time.monotonic() - since >= QUIET_S:
            return found[1].end
        if found is not None and found[0] != newest:
            newest, since = found[0], time.monotonic()
        time.sleep(0.2)
    raise RuntimeError(f"the archive {archive.url} is not at rest after {PATIENCE_S:g} s")


def sizes_of(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def cost(folder: Path) -> list[Figure]:
    url = folder / "archive"
    with (
        cluster(folder / "plain", TOPICS) as plain,
        cluster(folder / "kept", TOPICS, lambda text: with_archive(text, url)) as kept,
    ):

        def once(local: LocalCluster, *, many: bool) -> float:
            bring_in_memory(folder, 3 << 30)
            endpoints = local.endpoints.split(",")
            return send_many_rate(endpoints) if many else send_rate(endpoints, SINGLE)

        many = [partial(once, each, many=True) for each in (plain, kept)]
        single = [partial(once, each, many=False) for each in (plain, kept)]
        many_plain, many_kept = medians_in_turns(RUNS, many)
        plain_rate, kept_rate = medians_in_turns(RUNS, single)
        archive = FolderStore(url)
        end, before = at_rest(archive), sizes_of(url)
        send_many_rate(kept.endpoints.split(","), max(1, end // 100 // (BODY_BYTES + 200)))
        new = at_rest(archive) - end
        moved = sum(size for path, size in sizes_of(url).items() if path not in before)
    return [
        Figure("send_many with an archive, without", many_kept, "msg/s", 0.95, many_plain),
        Figure("send with an archive, without", kept_rate, "msg/s", 0.95, plain_rate),
        Figure("bytes moved for 1 % new data, of that data", moved, "bytes", 2.0, new, True),
    ]


def cold_pulls(folder: Path) -> list[Figure]:
    url = folder / "archive"
    cold = with_archive(
        "", url, "cold_reads = true\n[store.retention]\nreserved_hours = 1e-6\n"
        f"delete_hours = {list(range(24))}\ncheck_interval_ms = 100\n",
    )  # fmt: skip
    small: dict[str, Any] = {"commit_log_file_size": FILE_BYTES}
    with (
        cluster(folder / "files", 1, **small) as files,
        cluster(folder / "cold", 1, lambda text: text + cold, **small) as archived,
    ):
        for local in (files, archived):
            fill(local.nodes[0].endpoint)
        end = at_rest(FolderStore(url))
        time.sleep(1)  # retention
        kept = len(list((folder / "cold").rglob("commitlog/*"))) * FILE_BYTES
        if kept > end // 4:
            raise RuntimeError(f"retention has left {kept} of {end} bytes")
        warm, below = medians_in_turns(
            RUNS, [partial(rate, each.nodes[0].endpoint) for each in (files, archived)]
        )
    if end < COUNT * BODY:
        raise RuntimeError(f"the archive ends at {end}")
    return [Figure("pull from the archive, from files", below / MB, "MB/s", 0.5, warm / MB)]


def run(folder: Path) -> list[Figure]:
    keep_freed_memory()
    return [*cost(folder / "cost"), *cold_pulls(folder / "cold")]
