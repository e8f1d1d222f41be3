"""Full disks under a real node."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, wait_until
from tandemlog import Message, ProducerOptions
from tandemlog.errors import TandemlogError

pytestmark = pytest.mark.fault

# longer than a machine that others share may stand still
QUICK = ProducerOptions(
    delivery_timeout_ms=20_000, answer_timeout_ms=15_000, max_block_ms=20_000, linger_ms=1
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.fixture
def node(tmp_path: Path, small_disk: Path) -> Iterator[NodeProcess]:
    """A node whose store is on the small disk; topic full has one queue."""
    running = Running(
        tmp_path,
        flush="sync",
        master_store=small_disk / "store",
        store={"commit_log_file_size": 4 << 20},
    )
    with running:
        with tandemlog.Admin(running.master.endpoint) as admin:
            admin.create_topic("full", queues=1)
        yield running.master


def send_until_refused(endpoint: str, topic: str, body: bytes, most: int) -> tuple[int, str]:
    """How many were acknowledged, and what the first refusal said."""
    acknowledged = 0
    with contextlib.suppress(TandemlogError), tandemlog.Producer(endpoint, QUICK) as producer:
        for _ in range(most):
            try:
                producer.send(Message(topic, body, queue_id=0)).result(60)
            except (TandemlogError, TimeoutError) as problem:
                return acknowledged, str(problem)
            acknowledged += 1
    return acknowledged, ""


def test_a_full_disk_refuses_puts_and_serves_reads(node: NodeProcess) -> None:
    count, reason = send_until_refused(node.endpoint, "full", b"x" * 100_000, 400)
    assert 10 < count < 300
    assert "disk" in reason.lower() or "space" in reason.lower(), reason
    assert node.alive
    wait_until("reput", lambda: len(node.read_queue("full", 0)) >= count)
    # what is acknowledged survives the end of the process on the same full disk
    node.kill()
    node.start()
    assert len(node.read_queue("full", 0)) >= count


def test_a_node_starts_again_and_again_on_a_disk_that_others_have_filled(
    node: NodeProcess, small_disk: Path
) -> None:
    count, _ = send_until_refused(node.endpoint, "full", b"x" * 100_000, 10)
    assert count == 10
    wait_until("the reserve", (small_disk / "store" / "tandemlog" / "reserve").exists)
    fill(small_disk / "of another program")
    for _ in range(3):
        node.kill()
        node.start()
        assert len(node.read_queue("full", 0)) == count
    # the log file that is in use has its space; no other is made of what was given up
    more, reason = send_until_refused(node.endpoint, "full", b"x" * 100_000, 100)
    assert more < 100
    assert "disk" in reason.lower() or "space" in reason.lower(), reason
    count += more
    node.kill()
    node.start()
    wait_until("reput", lambda: len(node.read_queue("full", 0)) >= count)
    (small_disk / "of another program").unlink()
    wait_until("puts", lambda: send_until_refused(node.endpoint, "full", b"x", 1)[0] == 1, 60)
    wait_until("reput", lambda: len(node.read_queue("full", 0)) > count)


def test_a_node_starts_on_a_full_disk_that_has_no_room_for_its_queues(
    node: NodeProcess, small_disk: Path
) -> None:
    """Queue units of a thousand messages and more are made again, and a whole queue besides."""
    count = 20_000
    with tandemlog.Admin(node.endpoint) as admin:
        admin.create_topic("other", queues=1)
    with tandemlog.Producer(node.endpoint) as producer:
        producer.send_many("other", [b"served"])
        producer.send_many("full", [b"x"] * count)
    wait_until("reput", lambda: len(node.read_queue("full", 0)) == count)
    wait_until("the reserve", (small_disk / "store" / "tandemlog" / "reserve").exists)
    node.stop()
    shutil.rmtree(small_disk / "store" / "consumequeue" / "full")
    fill(small_disk / "of another program")
    for _ in range(2):
        node.start()
        assert "the store is open on a full disk" in node.tail(20_000)
        assert len(node.read_queue("other", 0)) == 1
        node.kill()
    (small_disk / "of another program").unlink()
    node.start()
    wait_until("the queue", lambda: len(node.read_queue("full", 0)) == count)


def fill(file: Path) -> None:
    """Until not a byte fits on the disk any more."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while out.write(bytes(4096)):
            pass
