"""One image for all container tests, built from the checkout; no registry is needed.

All that an engine keeps for these tests has the checkout's own name, so that two checkouts do not
run each other's image or take each other's cluster down; what a run that was killed has left is
taken down by the next one.
"""

import os
import subprocess
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = "tandemlog-base:bookworm"


@pytest.fixture(scope="session")
def own_name() -> str:
    """Of this checkout: for the image, the compose project, volumes."""
    return f"tandemlog-test-{zlib.crc32(bytes(ROOT)):08x}"


@pytest.fixture(scope="session")
def image(own_name: str) -> str:
    """The name of the image; the base comes from Debian's packages."""
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    subprocess.run(["sh", str(ROOT / "scripts" / "base_image.sh"), BASE], check=True, timeout=600)
    subprocess.run(
        [
            *("docker", "build", "-q", "--build-arg", f"BASE={BASE}", "-t", own_name),
            *("-f", str(ROOT / "compose" / "Dockerfile"), str(ROOT)),
        ],
        check=True,
        timeout=900,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    return own_name
