"""Clients and forks: multiprocessing, gunicorn with --preload, Celery's prefork pool."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.running import Running, free_ports, wait_until
from tandemlog import Admin, Consumer

pytestmark = pytest.mark.cluster

FAKES = Path(__file__).resolve().parent.parent / "fakes"
TOPIC = "forks"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Running(tmp_path_factory.mktemp("node")) as cluster:
        with Admin(cluster.master.endpoint) as admin:
            admin.create_topic(TOPIC, queues=4)
        yield cluster.master.endpoint


@pytest.mark.parametrize("scenario", ["at_work", "closed", "unsent", "in_a_loop", "pool"])
def test_forks_of_a_program_that_uses_clients(scenario: str, endpoint: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(FAKES / "forked_clients.py"), scenario, endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "Traceback" not in ended.stdout, ended.stdout


@pytest.mark.parametrize("preloaded", ["used", "open"])
def test_gunicorn_with_preload(preloaded: str, endpoint: str, tmp_path: Path) -> None:
    """Workers make producers of their own, though the master of gunicorn has used, or still has,
    clients; and all end when they are told to."""
    (port,) = free_ports(1)
    log = tmp_path / "gunicorn.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--no-control-socket",
             "--bind", f"127.0.0.1:{port}", "--graceful-timeout", "20", "forked_service:app"],
            env=os.environ | {"ENDPOINT": endpoint, "PRELOADED": preloaded},
            cwd=FAKES, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        workers: set[str] = set()

        def both_answered() -> bool:
            assert server.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                    workers.add(answer.read().decode())
            except ConnectionError:
                pass  # it does not listen yet
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionError):
                    raise
            return len(workers) == 2

        wait_until("both workers to have sent a message", both_answered, 60)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()
    text = log.read_text()
    assert "Traceback" not in text, text
    assert "SIGKILL" not in text, text
    assert "SIGABRT" not in text, text


def test_celery_with_the_prefork_pool(endpoint: str, tmp_path: Path) -> None:
    """Tasks send from two worker processes, whose parent has an open producer."""
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    environment = os.environ | {"ENDPOINT": endpoint, "QUEUE": str(tmp_path), "PYTHONWARNINGS": ""}
    log = tmp_path / "celery.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "forked_tasks", "worker", "--pool", "prefork",
             "--concurrency", "2", "--without-gossip", "--without-mingle", "--without-heartbeat"],
            env=environment, cwd=FAKES, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        subprocess.run(
            [sys.executable, "-c", "import forked_tasks as f; f.ask(8)"],
            env=environment, cwd=FAKES, check=True, timeout=60,
        )  # fmt: skip
        found: dict[str, str] = {}

        def all_sent() -> bool:
            assert worker.poll() is None, log.read_text()
            with Consumer(endpoint) as consumer, consumer.follow(TOPIC, until_end=True) as stream:
                for message in stream:
                    if message.tags == "celery":
                        found[message.keys[0]] = message.body.decode()
            return len(found) == 8

        wait_until("the messages of all tasks", all_sent, 60)
        assert len(set(found.values())) == 2
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    assert "Traceback" not in log.read_text(), log.read_text()
