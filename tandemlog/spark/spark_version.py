"""Which PySpark this is made for.

Sources with limits came with 4.2, and where a task's input ends is found in PySpark's own code
(input.py), so the extra `spark` names one minor version. With another one an import fails
somewhere, under a name that says nothing to whoever reads it.
"""

from importlib import metadata
from typing import Final

NEEDED: Final = "4.3"


def version_fault() -> str | None:
    """What is wrong with the PySpark that is installed; None for one that will do, or none."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
    if version.split(".")[:2] == NEEDED.split("."):
        return None
    return f"PySpark {NEEDED} is needed, {version} is installed"
