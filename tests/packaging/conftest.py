"""The wheel, built once. By the backend itself, so no package index is asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.running import ROOT


@pytest.fixture(scope="session")
def wheel_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path
