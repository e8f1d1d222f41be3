"""RocketMQ's clients that are not written in Java do on a node what they do on a broker."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tandemlog
from interop.nodes_for_clients import a_node

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "cpp" / "classic_program.py"
MESSAGES, QUEUES = 20, 4


@pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None, reason="its C++ library is for x86-64 alone"
)
def test_the_cpp_client(tmp_path: Path) -> None:
    with a_node(tmp_path) as node:
        with tandemlog.Admin(node.endpoint) as admin:
            admin.create_topic("Orders", QUEUES)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), node.address, "Orders", "readers"],
            check=True,
            capture_output=True,
            text=True,
            timeout=150,
            cwd=tmp_path,
        )
    seen = json.loads(done.stdout.splitlines()[-1])
    numbers = range(MESSAGES)
    assert seen == {
        "sent": {"sync OK": 10, "orderly OK": 9},
        "pulled": [f"key{number:02} body {number}" for number in numbers],
        "received": {
            "keys": [f"key{number:02} {number} tag" for number in numbers],
            "times": {"delivery 0": MESSAGES},
        },
    }
