"""The README's first command, with so few messages that they are sent before anything is killed."""

import subprocess
import sys

import pytest

from helpers.running import ROOT

pytestmark = pytest.mark.cluster


def test_the_demo_kills_nodes_under_load_however_soon_its_messages_are_sent() -> None:
    command = [sys.executable, "scripts/demo.py", "--messages", "400"]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "kill -9" in ended.stdout
    assert "leads epoch 2: the next put was acknowledged" in ended.stdout
    assert "nothing lost, nothing twice" in ended.stdout
