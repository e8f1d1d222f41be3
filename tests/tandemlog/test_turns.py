"""Turns between threads are short in a process that asks for it, and in no other."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import tandemlog
from tandemlog.turns import SWITCH_INTERVAL_S, take_short_turns
tandemlog.Producer
if sys.argv[1] == "short":
    take_short_turns()
print(sys.getswitchinterval() / SWITCH_INTERVAL_S)
"""


@pytest.mark.parametrize(("how", "expected"), [("short", 1.0), ("as it is", 10.0)])
def test_a_process_decides_for_itself(how: str, expected: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True
    )
    assert float(done.stdout) == pytest.approx(expected)
