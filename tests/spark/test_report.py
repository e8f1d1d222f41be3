"""A report of a job that real local Spark ran: the tasks' counts come together on the driver."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, flip, varied

pytestmark = [pytest.mark.spark, pytest.mark.lane("programs")]

FILE = 16384


def tandemlog(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tandemlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def without_what_differs(text: str) -> str:
    """Without the facts about the run, and without the seconds that it took."""
    text = re.sub(r"<dl>.*?</dl>", "", text, flags=re.DOTALL)
    return re.sub(r"seconds [\d.]+", "", text)


def test_spark_reports_what_one_process_reports(tmp_path: Path) -> None:
    log = varied(LogBuilder(tmp_path / "store", FILE))
    log.write()
    bad = next(each for each in log.records[30:] if len(each.body) > 20)
    flip(log, bad.physical_offset + 100)
    pages = {}
    for spark in ("local[2]", "none"):
        report = tmp_path / f"{spark}.html"
        words = ("pipeline", "audit", log.store, "--master", spark, "--report", report)
        done = tandemlog(*words)
        assert done.returncode == 1, done.stderr
        assert "FAULTS FOUND" in done.stderr
        pages[spark] = report.read_text()
    assert "<dd>on Spark, local[2]</dd>" in pages["local[2]"]
    assert (
        f"offset {bad.physical_offset}: message {bad.queue_offset} of {bad.topic}" in pages["none"]
    )
    assert without_what_differs(pages["local[2]"]) == without_what_differs(pages["none"])
