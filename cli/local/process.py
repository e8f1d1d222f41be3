"""How processes of a local cluster are started: with this very package on their path."""

import os
from pathlib import Path

import tandemlog


def with_package_path() -> dict[str, str]:
    """The environment of such a process."""
    package_root = str(Path(tandemlog.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
