"""A node in a process of its own that tells how long its event loop stood still.

    WatchedNode(folder).start() ── stdin: reset, report ──▶ this file as a program
                                ◀─ stdout: {"pause_ms": …, "rss_bytes": …}

In the node's loop a task sleeps TICK_S again and again; what it comes back late by is a pause. What
the machine took is taken off, since it says nothing of the node:

- the time in which this thread was ready and another process had the processor, which the kernel
  counts for each thread;
- the time in which no thread of the node ran. A thread that has Python's lock may have lost the
  processor as well, and the loop waits for both: a pause is at most what the whole process computed
  meanwhile. So a loop that waits for a disk is not seen here.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from helpers.running import ROOT, NodeProcess, toml
from tandemlog_server.node.process.log_setup import set_up_logging
from tandemlog_server.node.process.process_setup import prepare_process
from tandemlog_server.node.run import run_node
from tandemlog_server.node.settings.config_loading import load_config

TICK_S = 0.002


@dataclass(frozen=True)
class Report:
    """The longest pause since the last reset, and the resident memory now."""

    pause_ms: float
    rss_bytes: int


class WatchedNode(NodeProcess):
    """A NodeProcess, run by this file."""

    def start(self, *, wait: bool = True, timeout_s: float = 30) -> "WatchedNode":
        path = self.folder / "node.toml"
        path.write_text(toml(self.settings))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
            )
        if wait:
            self.wait_ready(timeout_s)
        return self

    def reset(self) -> None:
        self._ask("reset")

    def report(self) -> Report:
        answer = json.loads(self._ask("report"))
        return Report(answer["pause_ms"], answer["rss_bytes"])

    def _ask(self, command: str) -> str:
        assert isinstance(self.process, subprocess.Popen)
        stdin: IO[bytes] | None = self.process.stdin
        stdout: IO[bytes] | None = self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(command.encode() + b"\n")
        stdin.flush()
        return stdout.readline().decode()


class Watch:
    """The task in the loop."""

    def __init__(self) -> None:
        self.pause_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        before, waited, computed = loop.time(), _waited_s(), time.process_time()
        while True:
            await asyncio.sleep(TICK_S)
            now, waited_now, computed_now = loop.time(), _waited_s(), time.process_time()
            late = now - before - TICK_S - (waited_now - waited)
            self.pause_s = max(self.pause_s, min(late, computed_now - computed))
            before, waited, computed = now, waited_now, computed_now

    def answer(self) -> None:
        """What one line of stdin asks for."""
        command = sys.stdin.readline().strip()
        if command == "reset":
            self.pause_s = 0.0
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        rss_bytes = pages * resource.getpagesize()
        print(json.dumps({"pause_ms": self.pause_s * 1e3, "rss_bytes": rss_bytes}), flush=True)
        if not command:  # who asked is gone
            asyncio.get_running_loop().remove_reader(0)


def _waited_s() -> float:
    """How long this thread was ready and not run."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


async def _main(config: Path) -> None:
    watch = Watch()
    task = asyncio.create_task(watch.run())
    asyncio.get_running_loop().add_reader(0, watch.answer)
    await run_node(load_config(config))
    task.cancel()


if __name__ == "__main__":
    prepare_process()
    _config = load_config(Path(sys.argv[1]))
    set_up_logging(_config.log.level, node_id=_config.node_id)
    asyncio.run(_main(Path(sys.argv[1])))
