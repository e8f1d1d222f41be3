"""One image and one composed cluster for all container tests; no registry is needed.

The commands that build the images are those of docs/deploying.md. All that an engine keeps for
these tests has the checkout's own name, so that two checkouts do not run each other's image or
take each other's cluster down; what a run that was killed has left is taken down by the next one.
"""

import os
import subprocess
import time
import zlib
from collections.abc import Iterator

import pytest

from helpers.composed import COMPOSE, Composed
from helpers.deploying_page import commands
from helpers.running import ROOT


@pytest.fixture(scope="session")
def own_name() -> str:
    """Of this checkout: for the images, the compose project, volumes."""
    return f"tandemlog-test-{zlib.crc32(bytes(ROOT)):08x}"


@pytest.fixture(scope="session")
def image(own_name: str) -> str:
    """The name of the image; the page's commands make it and its base."""
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    script = "\n".join(commands("Images")).replace("tandemlog:local", own_name)
    assert own_name in script
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        check=True,
        timeout=900,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    return own_name


@pytest.fixture(scope="session")
def composed(image: str, own_name: str) -> Iterator[Composed]:
    """The cluster of compose/compose.yaml, started as the page says."""
    cluster = Composed(image, own_name)
    cluster.compose("down", "-v", "--remove-orphans")
    # etcd's image is built by `up` where it is not there; that is no part of the start
    cluster.compose("build", "etcd0")
    began = time.monotonic()
    cluster.bash("\n".join(commands("Start")[1:]), cwd=COMPOSE)
    cluster.started_s = time.monotonic() - began
    try:
        yield cluster
    except BaseException:
        print(cluster.compose("logs", "--tail", "40"))
        raise
    finally:
        cluster.compose("down", "-v", "--remove-orphans")
