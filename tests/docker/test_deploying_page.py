"""docs/deploying.md is true: its walk-through, command by command, on the cluster it starts."""

import pytest

from helpers.composed import Composed, docker
from helpers.deploying_page import commands
from helpers.running import wait_until

pytestmark = pytest.mark.docker

MOST_IMAGE_BYTES = 250_000_000
MOST_START_S = 180.0  # on a machine that is overloaded; the page says what an idle one takes


def test_the_image_is_small(image: str) -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", image)) < MOST_IMAGE_BYTES


def test_the_cluster_starts_quickly(composed: Composed) -> None:
    print(f"healthy and in sync after {composed.started_s:.1f} s")
    assert composed.started_s < MOST_START_S
    for service in ("n0", "n1", "n2", "etcd0", "etcd1", "etcd2"):
        container = composed.container(service)

        def healthy(container: str = container) -> bool:
            state = docker("inspect", "--format", "{{.State.Health.Status}}", container)
            return state.strip() == "healthy"

        # a machine that stands still fails some health checks in a row
        wait_until(f"{service} to be healthy", healthy, 90)


def test_the_walk_through(composed: Composed) -> None:
    walk = [
        *commands("Produce, and pull from a slave"),
        *commands("Stop the master, and continue"),
        *commands("Verify"),
    ]
    said = composed.bash("\n".join(walk))
    assert "everything holds" in said


def test_a_java_program_with_rocketmqs_client(composed: Composed) -> None:
    composed.wait_in_sync()
    composed.compose("build", "java", timeout_s=600)
    said = composed.compose("--profile", "rocketmq", "run", "--rm", "-T", "java", "200")
    assert "200 messages acknowledged" in said
    assert "200 messages received" in said

    def is_done() -> bool:
        rows = {row["group"]: row for row in composed.rows("group", "list")}
        return bool(rows["demo-readers"]["lag"] == 0)

    wait_until("the group's offsets to be those of its last messages", is_done, 30)


def test_who_has_no_token_is_refused(composed: Composed) -> None:
    with pytest.raises(AssertionError, match="unauthenticated"):
        composed.compose("run", "--rm", "-T", "-e", "TANDEMLOG_TOKEN_FILE=", "cli", "list")


@pytest.mark.parametrize(
    "words",
    [
        ("--env-file", "embedded.env"),
        ("--profile", "monitoring", "--profile", "spark", "--profile", "rocketmq"),
        ("-f", "compose.yaml", "-f", "compose.chaos.yaml"),
    ],
)
def test_the_other_ways_to_start_it_are_understood(
    words: tuple[str, ...], composed: Composed
) -> None:
    composed.compose(*words, "config", "-q")
