"""One image for all container tests, built from the checkout; no registry is needed."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = "tandemlog-base:bookworm"
IMAGE = "tandemlog:test"


@pytest.fixture(scope="session")
def image() -> str:
    """The name of the image; the base comes from Debian's packages."""
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    subprocess.run(["sh", str(ROOT / "scripts" / "base_image.sh"), BASE], check=True, timeout=600)
    subprocess.run(
        [
            *("docker", "build", "-q", "--build-arg", f"BASE={BASE}", "-t", IMAGE),
            *("-f", str(ROOT / "compose" / "Dockerfile"), str(ROOT)),
        ],
        check=True,
        timeout=900,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    return IMAGE
