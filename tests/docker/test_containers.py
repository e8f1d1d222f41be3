"""Nodes in containers: one by testcontainers, a cluster by compose, frozen, killed, cut off."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from running import wait_until

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_node_in_a_read_only_container_keeps_its_data(image: str, own_name: str) -> None:
    volume = f"{own_name}-single"
    subprocess.run(["docker", "volume", "rm", "-f", volume], capture_output=True, check=True)
    container = (
        DockerContainer(image)
        .with_command("node")
        .with_env("TANDEMLOG_LISTEN", "0.0.0.0:7100")
        .with_env("TANDEMLOG_ADVERTISE", "127.0.0.1:7100")
        .with_env("TANDEMLOG_HTTP_LISTEN", "0.0.0.0:7180")
        .with_env("TANDEMLOG_INSECURE", "true")
        .with_env("TANDEMLOG_STORE__DIRECTORY", "/data/store")
        .with_env("TANDEMLOG_STORE__COMMIT_LOG_FILE_SIZE", str(16 << 20))
        .with_env("TANDEMLOG_STORE__INDEX_SLOTS", "1000")
        .with_env("TANDEMLOG_STORE__INDEX_ENTRIES", "4000")
        .with_volume_mapping(volume, "/data", "rw")
        .with_kwargs(read_only=True, cap_drop=["ALL"], init=True)
    )
    try:
        container.start()
        node = container.get_wrapped_container()

        def healthy() -> bool:
            node.reload()
            return bool(node.attrs["State"].get("Health", {}).get("Status") == "healthy")

        wait_until("the container to be healthy", healthy, 60)
        said = node.exec_run(["tandemlog", "topic", "create", "t", "--endpoint", "127.0.0.1:7100"])
        assert said.exit_code == 0, said.output
        put = node.exec_run(
            [
                *("tandemlog", "put", "t", "--generate", "100", "--size", "64"),
                *("--endpoint", "127.0.0.1:7100"),
            ]
        )
        assert put.exit_code == 0, put.output
        node.kill("SIGKILL")
        node.start()
        wait_until("the container to be healthy again", healthy, 60)
        node.reload()
        pull = node.exec_run(
            [
                *("tandemlog", "pull", "t", "--offset", "earliest", "--max", "1000"),
                *("--format", "jsonl", "--endpoint", "127.0.0.1:7100"),
            ]
        )
        assert pull.exit_code == 0, pull.output
        rows = [json.loads(line) for line in pull.output.decode().splitlines() if line.strip()]
        assert len(rows) == 100
        node.stop(timeout=20)
        node.reload()
        assert node.attrs["State"]["ExitCode"] == 0
    finally:
        container.stop()
        subprocess.run(["docker", "volume", "rm", "-f", volume], capture_output=True, check=True)


class Composed:
    """The cluster of compose/compose.yaml as compose project `name`."""

    def __init__(self, image: str, name: str) -> None:
        self._name = name
        self._environment = {
            **os.environ,
            "TANDEMLOG_IMAGE": image,
            "TANDEMLOG_LOG_FILE_SIZE": str(16 << 20),
        }
        program = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        self._command = [*program, "-p", name, "-f", str(ROOT / "compose" / "compose.yaml")]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def docker(self, verb: str, service: str, *more: str) -> str:
        """`docker VERB CONTAINER MORE`: the engine answers at once, each compose takes a second."""
        labels = {"com.docker.compose.project": self._name, "com.docker.compose.service": service}
        filters = [f"--filter=label={name}={value}" for name, value in labels.items()]
        container = self._docker("ps", "--all", "--quiet", *filters).strip()
        assert container, f"{service} has no container"
        return self._docker(verb, container, *more)

    def _docker(self, *words: str) -> str:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, check=False, timeout=180
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tandemlog(self, service: str, *words: str) -> str:
        return self.docker("exec", service, "tandemlog", *words)

    def nodes(self) -> dict[str, dict[str, object]]:
        listed = self.tandemlog("n0", "list", "--endpoint", "n0:7100", "--format", "jsonl")
        rows = [json.loads(line) for line in listed.splitlines() if line.strip()]
        return {row["node"]: row for row in rows}


@pytest.fixture
def composed(image: str, own_name: str) -> Iterator[Composed]:
    cluster = Composed(image, own_name)
    cluster.run("down", "-v", "--remove-orphans")
    cluster.run("up", "-d", "--no-build")
    yield cluster
    cluster.run("down", "-v", "--remove-orphans")


def all_in_sync(cluster: Composed) -> bool:
    try:
        nodes = cluster.nodes()
    except AssertionError:
        return False
    return len(nodes) == 3 and all(node.get("in_sync") for node in nodes.values())


def send(cluster: Composed, count: int) -> None:
    """Put messages from inside the network, where the advertised names resolve."""
    cluster.tandemlog(
        "n0", *("put", "shop", "--generate", str(count), "--size", "64"), *("-e", "n0:7100")
    )


def count(cluster: Composed, service: str) -> int:
    """How many messages a reader gets who prefers the role of `service`."""
    answer = cluster.tandemlog(
        service,
        *("pull", "shop", "--offset", "earliest", "--max", "100000", "--format", "jsonl"),
        *("--from", "master" if service == "n0" else "slave", "-e", f"{service}:7100"),
    )
    return len({json.loads(line)["msg_id"] for line in answer.splitlines() if line.strip()})


def test_a_composed_cluster_survives_freezes_kills_and_cuts(composed: Composed) -> None:
    wait_until("the composed cluster to be in sync", lambda: all_in_sync(composed), 90)
    composed.tandemlog("n0", "topic", "create", "shop", "--endpoint", "n0:7100")
    send(composed, 200)

    # one slave frozen: the other one carries the puts
    composed.docker("pause", "n1")
    send(composed, 200)
    # both gone: min_in_sync=2 cannot be met, and nothing is acknowledged
    composed.docker("kill", "n2")
    with pytest.raises(AssertionError):
        send(composed, 1)
    composed.docker("unpause", "n1")
    composed.docker("start", "n2")
    wait_until("both slaves to be back", lambda: all_in_sync(composed), 90)

    # the master killed and started again: what was acknowledged is served by every node
    composed.docker("kill", "n0")
    composed.docker("start", "n0")
    wait_until("the master to be back", lambda: all_in_sync(composed), 90)
    send(composed, 200)
    for service in ("n0", "n1", "n2"):
        wait_until(
            f"{service} to serve everything",
            lambda service=service: count(composed, service) >= 600,
            30,
        )
