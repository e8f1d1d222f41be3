"""`tandemlog up --rocketmq` prints programs of one line, and they work as they stand."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers.running import ROOT, first_of_free_row, free_ports, wait_until
from interop.jars import java

pytestmark = pytest.mark.interop

TRIES = 3
SIZES = ("--commit-log-file-size=4194304", "--queue-file-size=20000", "--index-slots=100")


class Up:
    """The program in the foreground, and what it printed."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "up.log"
        self.port, (door, grpc) = first_of_free_row(2), free_ports(2)
        doors = (f"--rocketmq-port={door}", f"--rocketmq-grpc-port={grpc}")
        options = ("--slaves=1", f"--port={self.port}", *doors)
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tandemlog", "up", "--rocketmq"),
                    *(*options, f"--dir={folder / 'data'}", "--index-entries=400", *SIZES),
                ],
                cwd=ROOT,
                stdout=out,
                stderr=out,
            )
        self.doors = [(f"127.0.0.1:{door + n}", f"127.0.0.1:{grpc + n}") for n in range(2)]

    def said(self) -> str:
        return self._out.read_text()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return "\nPython 5.x: " in self.said()

    def program(self, language: str) -> str:
        (line,) = [each for each in self.said().splitlines() if each.startswith(f"{language}: ")]
        return line.removeprefix(f"{language}: ")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    cluster = Up(tmp_path_factory.mktemp("up"))
    try:
        wait_until("the cluster to be ready", cluster.is_ready, 60)
        yield cluster
    finally:
        cluster.process.terminate()
        cluster.process.wait(60)


def bodies(up: Up) -> list[bytes]:
    endpoint = f"127.0.0.1:{up.port}"
    with (
        tandemlog.Consumer(endpoint) as consumer,
        consumer.follow("Demo", until_end=True) as stream,
    ):
        return [each.body for each in stream]


def said_by(command: list[str], folder: Path) -> str:
    """What a program prints. On a busy machine a client may give up, which is after 3 s."""
    for _ in range(TRIES):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=150, cwd=folder
        )
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(done.stdout + done.stderr)


def test_the_java_line(up: Up, tmp_path: Path) -> None:
    source = tmp_path / "Line.java"
    # a client that began to run does not end with the thread of `main`
    source.write_text(
        "public class Line { public static void main(String[] arguments) { try { "
        f"{up.program('Java')} System.exit(0); "
        "} catch (Throwable problem) { problem.printStackTrace(); System.exit(1); } } }"
    )
    assert "sendStatus=SEND_OK" in said_by(java(str(source), home=tmp_path), tmp_path)
    assert b"hello" in bodies(up)


@pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None, reason="its C++ library is for x86-64 alone"
)
def test_the_python_line(up: Up, tmp_path: Path) -> None:
    said = said_by([sys.executable, "-c", up.program("Python")], tmp_path)
    assert "SendStatus.OK" in said
    assert b"hello" in bodies(up)


def test_the_list_has_the_doors_of_each_node(up: Up) -> None:
    command = ("list", "--endpoint", f"127.0.0.1:{up.port}", "--format", "jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "tandemlog", *command],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["node"]: (row["rocketmq"], row["rocketmq_grpc"]) for row in rows} == {
        "n0": up.doors[0],
        "n1": up.doors[1],
    }
