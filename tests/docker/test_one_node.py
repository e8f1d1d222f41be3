"""One node in a container that may write to its volume only, by testcontainers."""

import json
import subprocess

import pytest
from testcontainers.core.container import DockerContainer

from helpers import borrowed_disk
from helpers.running import wait_until

pytestmark = pytest.mark.docker


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
    for name, value in borrowed_disk.ENVIRONMENT.items():
        container.with_env(name, value)
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
        node.stop(timeout=50)
        node.reload()
        assert node.attrs["State"]["ExitCode"] == 0
    finally:
        container.stop()
        subprocess.run(["docker", "volume", "rm", "-f", volume], capture_output=True, check=True)
