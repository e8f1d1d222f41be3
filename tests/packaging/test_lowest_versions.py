"""A cluster runs on the lowest versions of everything that pyproject.toml names.

What the bounds promise is not repeated here: they are read, `>=` becomes `==`, and the package is
installed beside exactly those, in a virtual environment of its own, without its sources.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers import needs
from helpers.running import ROOT, SMALL, first_of_free_row, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.lane("machine"),
    pytest.mark.skipif(
        sys.version_info >= (3, 13), reason="the lowest numpy has no wheel for this Python"
    ),
]

SIZES = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
INDEX_SIZES = [each for each in SIZES if each.startswith("--index")]
BODIES = [b"%d" % number for number in range(500)]


def pins() -> list[str]:
    """What a node needs, each at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *extras["columns"], *extras["server"]]
    needs = [each for each in needs if not each.startswith("tandemlog[")]
    unbounded = [each for each in needs if each.count(">=") != 1]
    assert not unbounded, f"without a lower bound: {unbounded}"
    return [each.replace(">=", "==") for each in needs]


def run(*command: str | Path, stdin: bytes = b"") -> bytes:
    """What a program says on stdout; it must end well."""
    ended = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=300,
        cwd="/",
        env=environment(),
    )
    said = ended.stderr.decode(errors="replace")
    assert ended.returncode == 0, f"{' '.join(map(str, command))}\n{said}"
    return ended.stdout


def environment() -> dict[str, str]:
    """One in which Python finds no module of ours but those that are installed."""
    strangers = ("PYTHONPATH", "TANDEMLOG_")
    return {k: v for k, v in os.environ.items() if not k.startswith(strangers)}


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory, wheel_path: Path) -> Path:
    """The programs of a virtual environment with the package on the lowest versions."""
    folder = tmp_path_factory.mktemp("lowest")
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    reach = [*pip, "download", "--no-deps", "--dest", str(folder), "hatchling"]
    if subprocess.run(reach, capture_output=True, check=False).returncode != 0:
        needs.cannot_run("no package index can be reached")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    wheels = ("--no-compile", "--only-binary=:all:")
    run(*pip, "--python", python, "install", *wheels, *pins(), wheel_path)
    return python.parent


@contextmanager
def up(tandemlog: Path, folder: Path, port: int) -> Iterator[None]:
    """A master and a slave; stopped cleanly in the end."""
    said = folder / "up.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [tandemlog, "up", "--slaves=1", f"--dir={folder}", f"--port={port}", *SIZES],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env=environment(),
        )

    def ready() -> bool:
        assert process.poll() is None, said.read_text()
        return "ready:" in said.read_text()

    try:
        wait_until("the cluster to be ready", ready, 180)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    assert process.returncode == 0, said.read_text()


def test_a_cluster_on_the_lowest_versions(bin_folder: Path, tmp_path: Path) -> None:
    tandemlog = bin_folder / "tandemlog"
    port = first_of_free_row(2)
    node = ("--endpoint", f"127.0.0.1:{port}")
    with up(tandemlog, tmp_path, port):
        run(tandemlog, "topic", "create", "t", "--queues", "2", *node)
        run(tandemlog, "put", "t", "--key", "k", *node, stdin=b"\n".join(BODIES))
        # --follow, since the slave may still be on the way
        pull = ["pull", "t", "--offset", "earliest", "--from", "slave", "--format", "jsonl"]
        pull += ["--follow", "--max", str(len(BODIES))]
        pulled = [json.loads(line) for line in run(tandemlog, *pull, *node).splitlines()]
        assert sorted(base64.b64decode(each["body"]) for each in pulled) == sorted(BODIES)
        assert run(tandemlog, "query", "t", "--key", "k", "--max", "3", *node)
        assert b"slave" in run(tandemlog, "list", *node)  # a table
        with grpc.insecure_channel(node[1]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            health = stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
        with urlopen(f"http://127.0.0.1:{port + 100}/metrics", timeout=60) as metrics:
            assert b"\ntandemlog_" in metrics.read()
    for name in ("n0", "n1"):
        run(tandemlog, "verify", tmp_path / name / "store", *INDEX_SIZES)
