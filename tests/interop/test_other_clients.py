"""RocketMQ's clients that are not written in Java do on a node what they do on a broker."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tandemlog
from interop.nodes_for_clients import a_node
from interop.other_clients import CPP, GO, cpp_seen, go_program
from interop.rocketmq import BROKER_NAME

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent
PROGRAM = HERE / "cpp" / "classic_program.py"
QUEUES = 4


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
    assert cpp_seen(json.loads(done.stdout.splitlines()[-1])) == CPP


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_the_go_client(tmp_path: Path) -> None:
    with a_node(tmp_path) as node:
        with tandemlog.Admin(node.endpoint) as admin:
            for topic in ("Sent", "Ordered", "Delayed", "Halves"):
                admin.create_topic(topic, QUEUES)
        done = subprocess.run(
            [str(go_program()), node.address, BROKER_NAME],
            check=True,
            capture_output=True,
            text=True,
            timeout=150,
            cwd=tmp_path,
        )
    assert json.loads(done.stdout) == GO
