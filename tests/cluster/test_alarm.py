"""A master that has lost its store: an operator sees the alarm wherever they look."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import tandemlog
from helpers import forked
from helpers.running import ROOT, Running, wait_until

pytestmark = pytest.mark.cluster


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments, timeout_s=60)


def test_an_alarm_is_seen_everywhere(tmp_path: Path) -> None:
    with Running(tmp_path, slaves=1, flush="sync", min_in_sync=2) as running:
        master, slave = running.nodes
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("t", queues=1)
        with tandemlog.Producer(running.endpoints) as producer:
            producer.send_many("t", [b"%d" % each for each in range(100)])
        running.wait_in_sync()

        def healthy() -> bool:
            """A slave that stood still for some seconds with the machine has to rejoin first."""
            checked = program("check", "--endpoint", master.endpoint)
            in_sync = checked.stdout.startswith("OK: n0 is the master, 1 slave in sync")
            return in_sync and checked.returncode == 0

        wait_until("check to be well", healthy, 60)
        slave.kill()
        wait_until("the master to refuse puts", lambda: master.http_status("/master") == 503)
        alone = program("check", "--endpoint", master.endpoint)
        assert alone.returncode == 2, alone.stdout
        assert alone.stdout.startswith("CRITICAL: the master n0 acknowledges no puts: ")
        slave.start()
        running.wait_in_sync()
        master.stop()
        shutil.rmtree(master.store)
        master.start()

        wait_until("the slave to be refused", lambda: master.http_status("/health") == 503)
        wait_until("it to live", lambda: master.http_status("/liveness") == 200)
        wait_until("no put to be taken", lambda: master.http_status("/master") == 503)
        with urllib.request.urlopen(f"{master.http}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
        assert 'tandemlog_alarms{cluster="test",node="n0",peer="n1"} 1.0' in metrics
        assert "alarm: refused slave n1" in master.log.read_text()

        checked = program("check", "--endpoint", slave.endpoint + "," + master.endpoint)
        assert checked.returncode == 2, checked.stdout
        assert checked.stdout.startswith("CRITICAL: alarm of n1: ")
        listed = program("list", "--endpoint", master.endpoint)
        assert "ALARM n1: " in listed.stderr
        assert "Make a slave the master" in listed.stderr
        rows = program("list", "--endpoint", master.endpoint, "--format", "jsonl").stdout
        states = {row["node"]: row for row in map(json.loads, rows.splitlines())}
        assert (states["n1"]["state"], states["n1"]["endpoint"]) == ("refused", slave.endpoint)
        assert states["n1"]["alarm"]


def test_list_watches(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        arguments = ("list", "--endpoint", running.master.endpoint, "--format", "jsonl")
        with subprocess.Popen(
            [sys.executable, "-m", "tandemlog", *arguments, "--watch", "0.1"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            rows = [json.loads(watching.stdout.readline()) for _ in range(3)]
            watching.send_signal(signal.SIGINT)
            _, said = watching.communicate(timeout=60)
        assert [row["node"] for row in rows] == ["n0"] * 3
        assert watching.returncode == 130
        assert "Traceback" not in said


def test_check_without_a_cluster() -> None:
    checked = program("check", "--endpoint", "127.0.0.1:9", "--timeout", "1")
    assert checked.returncode == 3
    assert checked.stdout.startswith("UNKNOWN: ")
