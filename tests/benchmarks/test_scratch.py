"""What a benchmark leaves behind when it is ended: nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.running import ROOT

BENCHMARK = """
import sys, time
from benchmarks.harness.scratch import scratch_folder
with scratch_folder("test") as folder:
    (folder / "n0").mkdir()
    (folder / "n0" / "store").write_bytes(b"gigabytes")
    try:
        print(folder, flush=True)
        time.sleep(600)
    finally:
        print("stopped", flush=True)
        sys.stdin.read()
"""


@pytest.mark.cluster
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_benchmark_that_is_ended_leaves_no_folder(ending: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        # as a terminal starts it, also where this run goes on in the background
        preexec_fn=lambda: signal.signal(ending, signal.SIG_DFL),
    ) as benchmark:  # fmt: skip
        assert benchmark.stdout is not None
        assert benchmark.stdin is not None
        folder = Path(benchmark.stdout.readline().strip())
        assert (folder / "n0" / "store").exists()
        benchmark.send_signal(ending)
        assert benchmark.stdout.readline() == "stopped\n", "what it has started is stopped first"
        benchmark.send_signal(ending)  # who is impatient
        benchmark.stdin.close()
        assert benchmark.wait(30) == 128 + ending
        assert not folder.exists()
