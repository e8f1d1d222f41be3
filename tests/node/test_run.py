"""The program as processes: `up` and what becomes of it, how a node starts, fails to, and stops."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.running import ROOT, SMALL, NodeProcess, first_of_free_row, free_ports, wait_until
from tandemlog import Admin, Consumer
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.errors import TandemlogError
from tandemlog.message import Message
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.sync.sync_producer import Producer

pytestmark = pytest.mark.cluster

SIZES = [
    f"--{name.replace('_', '-')}={value}"
    for name, value in SMALL.items()
    if name != "commit_log_file_size"
]


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tandemlog", *arguments]


class Up:
    """`tandemlog up` in a process group of its own, as a terminal would have it."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        self.process = subprocess.Popen(
            program("up", "--dir", str(directory), "--port", str(port), *options),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []

    def wait_ready(self) -> "Up":
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("ready:"):
                return self
        raise AssertionError("".join(self.said))

    def interrupt(self) -> int:
        """Ctrl-C: the whole group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)
        out, _ = self.process.communicate(timeout=60)
        self.said.append(out)
        return self.process.returncode


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def nodes(pid: int) -> list[int]:
    """The children that are nodes, n0 first; the coordinator is one too."""
    return [
        each for each in children(pid) if b"--config" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]


@pytest.fixture
def port() -> int:
    return first_of_free_row(3)


def test_up_goes_on_with_its_data_and_stops_cleanly(tmp_path: Path, port: int) -> None:
    up = Up(tmp_path, port, "--slaves", "1", *SIZES, "--commit-log-file-size=1048576").wait_ready()
    endpoint = f"127.0.0.1:{port}"
    try:
        with Admin(endpoint) as admin, Producer(endpoint) as producer:
            admin.create_topic("t", 2)
            producer.send_many("t", [b"%d" % each for each in range(1000)])
            listed = subprocess.run(
                program("list", "--endpoint", f"127.0.0.1:{port + 1}", "--format", "jsonl"),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            rows = [json.loads(line) for line in listed.stdout.splitlines()]
            assert [(row["node"], row["role"]) for row in rows] == [
                ("n0", "master"),
                ("n1", "slave"),
            ]
    finally:
        assert up.interrupt() == 0, "".join(up.said)
    assert "stopped cleanly" in up.said[-1]
    for node in ("n0", "n1"):
        assert not (tmp_path / node / "store" / "abort").exists()
    again = Up(tmp_path, port).wait_ready()
    try:
        with Consumer(endpoint, read_from="slave") as consumer:
            assert len(list(consumer.follow("t", until_end=True))) == 1000
    finally:
        assert again.interrupt() == 0


def test_a_node_that_dies_is_shown_and_the_rest_goes_on(tmp_path: Path, port: int) -> None:
    sizes = (*SIZES, "--commit-log-file-size=1048576")
    up = Up(tmp_path, port, "--slaves", "1", "--no-restart", *sizes).wait_ready()
    assert up.process.stdout is not None
    os.kill(nodes(up.process.pid)[1], signal.SIGKILL)
    while "n1 -" not in (line := up.process.stdout.readline()) or "down" not in line:
        assert line, "the end of n1 was not told"
    assert "was killed by signal 9" in line
    assert f"--config {tmp_path}/n1/node.toml" in line
    assert up.interrupt() == 1  # not all stopped cleanly
    assert "n1 was killed by signal 9" in up.said[-1]


def test_a_node_that_dies_is_restarted_and_one_that_is_stopped_is_not(
    tmp_path: Path, port: int
) -> None:
    sizes = (*SIZES, "--commit-log-file-size=1048576")
    up = Up(tmp_path, port, "--slaves", "1", *sizes).wait_ready()
    assert up.process.stdout is not None
    first, second = nodes(up.process.pid)

    def wait_for(*words: str) -> None:
        assert up.process.stdout is not None
        for line in iter(up.process.stdout.readline, ""):
            if all(word in line for word in words):
                return
        raise AssertionError(f"the output ended without {words}")

    if not any("n1 slave" in line and "in-sync" in line for line in up.said):
        wait_for("n1 slave", "in-sync")
    os.kill(first, signal.SIGKILL)
    wait_for("n0 -", "restarted soon")
    wait_for("n1 master")
    wait_for("n0 slave", "in-sync")
    os.kill(second, signal.SIGTERM)
    while "n1 -" not in (line := up.process.stdout.readline()) or "down" not in line:
        assert line, "the end of n1 was not told"
    assert "ended with exit code 0; restart it with" in line
    assert up.interrupt() == 0, "".join(up.said)


def test_the_nodes_end_with_up_however_it_ends(tmp_path: Path, port: int) -> None:
    up = Up(tmp_path, port, "--slaves", "1", *SIZES, "--commit-log-file-size=1048576").wait_ready()
    processes = children(up.process.pid)
    assert len(processes) == 3
    up.process.kill()
    wait_until("the nodes to end", lambda: not any(map(alive, processes)))
    up.process.communicate(timeout=10)
    assert not (tmp_path / "n0" / "store" / "abort").exists()


def test_up_says_why_a_node_did_not_start(tmp_path: Path, port: int) -> None:
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "store").write_text("")
    up = Up(tmp_path, port, "--slaves", "1", *SIZES, "--commit-log-file-size=1048576")
    out, _ = up.process.communicate(timeout=60)
    assert up.process.returncode == 7
    assert "n1 ended with exit code 7: " in out.splitlines()[-1]


@pytest.mark.parametrize("distance", [0, 1, 50, 101])
def test_up_starts_nothing_where_a_port_is_taken(tmp_path: Path, port: int, distance: int) -> None:
    name = "the coordinator" if distance == 50 else f"n{distance % 100}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + distance))
        taken.listen()
        up = Up(tmp_path, port, "--slaves", "1", *SIZES, "--commit-log-file-size=1048576")
        out, _ = up.process.communicate(timeout=60)
    assert up.process.returncode == 8
    assert out == (
        f"tandemlog: {name}: cannot listen on 127.0.0.1:{port + distance}: "
        "another process uses the port; choose another --port\n"
    )
    assert not (tmp_path / "cluster.json").exists()


def node_at(folder: Path, **settings: object) -> NodeProcess:
    first, second = free_ports(2)
    return NodeProcess(
        folder,
        {
            "listen": f"127.0.0.1:{first}",
            "http_listen": f"127.0.0.1:{second}",
            "node_id": "n0",
            **settings,
            "store": {"directory": folder / "store", **SMALL},
        },
    )


def failed_start(node: NodeProcess) -> tuple[int, str]:
    """Exit code and the only line on stderr, log lines apart."""
    node.log.unlink(missing_ok=True)
    node.start(wait=False)
    assert node.process is not None
    code = node.process.wait(30)
    lines = [line for line in node.tail().splitlines() if line.startswith("tandemlog: ")]
    assert "Traceback" not in node.tail()
    assert len(lines) == 1, node.tail()
    return code, lines[0]


def test_a_node_says_why_it_does_not_start(tmp_path: Path) -> None:
    running = node_at(tmp_path / "a").start()
    try:
        assert running.process is not None
        second = node_at(tmp_path / "b")
        second.settings["store"]["directory"] = running.store
        code, line = failed_start(second)
        assert code == 7
        assert f"is open in process {running.process.pid}" in line
        second.settings["store"]["directory"] = tmp_path / "b" / "store"
        second.settings["listen"] = running.endpoint
        code, line = failed_start(second)
        assert (code, "another process uses the port" in line) == (8, True)
    finally:
        assert running.stop() == 0
    wrong_size = node_at(tmp_path / "a")
    wrong_size.settings["store"]["index_slots"] = 77
    (tmp_path / "a" / "store" / "index").mkdir(exist_ok=True)
    (tmp_path / "a" / "store" / "index" / "20260101000000000").write_bytes(bytes(5_000))
    code, line = failed_start(wrong_size)
    assert (code, "index_slots" in line) == (7, True)
    unknown = node_at(tmp_path / "c", rolle="master")
    code, line = failed_start(unknown)
    assert (code, "unknown key rolle; valid: advertise" in line) == (2, True)


def test_sighup_does_not_end_a_node_without_a_terminal(tmp_path: Path) -> None:
    """Log rotation sends it, and a service manager asked to reload."""
    node = node_at(tmp_path).start()
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    wait_until("the line in the log", lambda: "SIGHUP changes nothing" in node.tail())
    with Admin(node.endpoint) as admin:
        admin.create_topic("after", 1)
    node.process.terminate()
    assert node.process.wait(30) == 0


def test_sigterm_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    node = node_at(tmp_path).start()
    with Admin(node.endpoint) as admin:
        admin.create_topic("t", 4)
    acknowledged = 0
    options = ProducerOptions(
        delivery_timeout_ms=500, connection=ConnectionOptions(retry_timeout_ms=200)
    )
    with Producer(node.endpoint, options) as producer:
        futures = [producer.send(Message("t", b"%d" % each)) for each in range(2_000)]
        wait_until("the first answer", lambda: futures[0].done())
        assert node.process is not None
        node.process.terminate()
        futures += [producer.send(Message("t", b"%d" % each)) for each in range(2_000, 3_000)]
        assert node.process.wait(30) == 0
        for future in futures:
            try:
                future.result(30)
            except TandemlogError:
                continue
            acknowledged += 1
    assert acknowledged > 0
    assert not (node.store / "abort").exists()
    node.start()
    held = sum(len(node.read_queue("t", queue_id)) for queue_id in range(4))
    assert node.stop() == 0
    assert held >= acknowledged


def test_an_idle_node_is_small_and_sleeps(tmp_path: Path) -> None:
    node = node_at(tmp_path).start()
    try:
        assert node.process is not None
        wait_until("HTTP", lambda: node.http_status("/health") == 200)
        status = Path(f"/proc/{node.process.pid}/status").read_text()
        resident_kb = int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1])
        assert resident_kb < 150_000
        before = cpu_ticks(node.process.pid)
        time.sleep(2)
        # a tenth of one processor: what turns in a loop takes all of it
        assert cpu_ticks(node.process.pid) - before < 0.1 * 2 * os.sysconf("SC_CLK_TCK")
    finally:
        node.kill()


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
