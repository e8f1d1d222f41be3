"""How processes of a local cluster are started: with this very package on their path."""

import os
from pathlib import Path


def with_package_path() -> dict[str, str]:
    """The environment of such a process."""
    package_root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
