"""compose/systemd: systemd itself finds no fault with the units, and a node keeps what they say.

No machine of these tests is run by systemd. So its own tools read the units; the test plays the
manager for a real node; and the system calls of that node are held against the unit's filter.
"""

import configparser
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from helpers import needs
from helpers.coordinators import EmbeddedProcess
from helpers.running import ROOT, Running, wait_until
from tandemlog import Admin
from tandemlog.sync.sync_producer import Producer
from tandemlog.v1 import admin_pb2, admin_pb2_grpc

UNITS = ROOT / "compose" / "systemd"
NAMES = {
    "tandemlog-node@.service": "tandemlog-node@n0.service",
    "tandemlog-coordinator.service": "tandemlog-coordinator.service",
}
MOST_EXPOSED = 1.5


class Unit(configparser.RawConfigParser):
    """A unit's settings; of a key that stands there twice all values."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False)
        text = (UNITS / name).read_text()
        self.calls = re.findall("^SystemCallFilter=(.*)$", text, re.MULTILINE)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(text)


def analyze(*words: str) -> str:
    if shutil.which("systemd-analyze") is None:
        needs.cannot_run("not on PATH: systemd-analyze (Debian's package systemd)")
    done = subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_no_fault(name: str, tmp_path: Path) -> None:
    program = tmp_path / "tandemlog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / NAMES[name]
    text = (UNITS / name).read_text()
    assert "/opt/tandemlog/bin/tandemlog" in text
    unit.write_text(text.replace("/opt/tandemlog/bin/tandemlog", str(program)))
    assert analyze("verify", "--recursive-errors=no", str(unit)) == ""
    said = analyze("security", "--offline=yes", "--no-pager", str(unit))
    found = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= MOST_EXPOSED


def allowed_calls(filters: Sequence[str]) -> set[str]:
    """The system calls that lines of SystemCallFilter= leave, with their groups resolved."""

    def resolved(name: str) -> set[str]:
        if not name.startswith("@"):
            return {name}
        lines = analyze("syscall-filter", "--no-pager", name).splitlines()[1:]
        names = [line.strip() for line in lines if line.strip() and line.strip()[0] != "#"]
        return set().union(*(resolved(each) for each in names))

    calls: set[str] = set()
    for line in filters:
        found = set().union(*(resolved(each) for each in line.lstrip("~").split()))
        calls = calls - found if line.startswith("~") else calls | found
    return calls


class Manager:
    """Hears at once what a service says: the socket of one that does not listen holds ten words."""

    def __init__(self, address: Path) -> None:
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        while said := self._socket.recv(4096):
            self.heard.append(said.decode())

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RD)
        self._listening.join()
        self._socket.close()


@pytest.mark.cluster
def test_a_node_says_when_it_serves_and_needs_no_call_that_its_unit_forbids(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        needs.cannot_run("not on PATH: strace")
    unit = Unit("tandemlog-node@.service")
    assert unit["Service"]["Type"] == "notify"
    trace, address = tmp_path / "trace", tmp_path / "notify"
    systemd = Manager(address)
    cluster = Running(tmp_path, flush="sync")
    node = cluster.master
    # -D: strace is the child, so the process that was started is the node's own
    node.wrapper = (
        *("env", f"NOTIFY_SOCKET={address}", "WATCHDOG_USEC=200000"),
        *("strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", str(trace)),
    )
    try:
        node.start(wait=False)
        wait_until("the node to be ready", lambda: bool(systemd.heard), 180)
        assert systemd.heard[0].startswith("READY=1\nSTATUS=serving on 127.0.0.1:")
        # it serves from that moment on
        with grpc.insecure_channel(node.endpoint) as channel:
            request = admin_pb2.DescribeClusterRequest()
            assert admin_pb2_grpc.AdminStub(channel).DescribeCluster(request, timeout=60).nodes
        with Admin(node.endpoint) as admin, Producer(node.endpoint) as producer:
            admin.create_topic("t", 2)
            producer.send_many("t", [b"x"] * 100)
        wait_until("a sign of life", lambda: systemd.heard[1:2] == ["WATCHDOG=1"], 60)
        assert node.stop(60) == 0, node.tail()
        wait_until(
            "its end", lambda: any(each.startswith("STOPPING=1") for each in systemd.heard), 60
        )
    finally:
        cluster.close()
        systemd.close()
    used = set(re.findall(r"^\d+ +(?:<\.\.\. )?([a-z_0-9]+)[( ]", trace.read_text(), re.MULTILINE))
    assert {"fdatasync", "mmap", "sendto"} <= used
    assert used - allowed_calls(unit.calls) == set()


@pytest.mark.cluster
def test_the_coordinator_says_when_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Unit("tandemlog-coordinator.service")["Service"]["Type"] == "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        coordinator = EmbeddedProcess(tmp_path / "coordinator")
        try:
            coordinator.start()
            assert systemd.recv(4096).startswith(b"READY=1\nSTATUS=coordinator on 127.0.0.1:")
            host, _, port = coordinator.endpoint.rpartition(":")
            socket.create_connection((host, int(port)), 60).close()  # it listens from now on
            wait_until("the coordinator to answer", coordinator.answers)
            assert coordinator.stop() == 0
            assert systemd.recv(4096).startswith(b"STOPPING=1")
        finally:
            coordinator.kill()


def test_the_store_sees_whether_the_machine_was_restarted() -> None:
    # its boot id is in /proc/sys, which ProcSubset=pid hides
    assert "ProcSubset" not in Unit("tandemlog-node@.service")["Service"]
