"""`tandemlog drill`: what it counts while a master is killed, or switched."""

import json
import subprocess
import sys

import pytest

from helpers.running import ROOT, first_of_free_row

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]


@pytest.mark.parametrize("fault", ["kill-master", "switchover"])
def test_a_drill_counts_what_came_of_all_messages(fault: str) -> None:
    port = first_of_free_row(3)
    command = [sys.executable, "-m", "tandemlog", "drill", fault, "--rounds", "1"]
    done = subprocess.run(
        [*command, "--port", str(port), "--format", "jsonl"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    played, total = [json.loads(line) for line in done.stdout.splitlines()]
    assert played["fault"] == fault
    assert played["after"] != played["before"]
    assert played["epoch"] == 2
    assert 0 < played["seconds"] < 30
    assert total["acknowledged"] > 0
    assert (total["failed"], total["lost"], total["duplicated"]) == (0, 0, 0)
