"""Which versions of PySpark work, part by part.

    4.0   the sources as a batch, the jobs, a batch write that may repeat rows
    4.1   a stream's write that may repeat rows      takes Arrow batches since then
    4.2   the source as a stream                     limits and available-now came with it
    4.3   exactly-once writes                        where a task's input ends is found in PySpark's
                                                     own code (writer.py), as it is since then

If an older version lacks something, the driver refuses it by name before a task starts. Otherwise
an import or a task would fail with a name that means nothing to the user. Newer versions have not
been tried, and are refused as well.
"""

import re
from importlib import metadata
from typing import Final

Version = tuple[int, int]

OLDEST: Final[Version] = (4, 0)
NEWEST: Final[Version] = (4, 3)

STREAM_WRITE: Final[Version] = (4, 1)
STREAM_READ: Final[Version] = (4, 2)
EXACTLY_ONCE: Final[Version] = (4, 3)


def version_fault() -> str | None:
    """What is wrong with the installed PySpark; None if it works, or there is none."""
    version = _installed()
    if version is None or OLDEST <= _minor(version) <= NEWEST:
        return None
    return f"PySpark {_text(OLDEST)} to {_text(NEWEST)} is needed, {version} is installed"


def part_fault(part: str, needed: Version) -> str | None:
    """The sentence that `part` needs a newer PySpark than the installed one; None if not."""
    if is_at_least(needed):
        return None
    return f"{part} needs PySpark {_text(needed)} or newer, {_installed()} is installed"


def is_at_least(needed: Version) -> bool:
    """Whether PySpark has this minor version or a newer one, or its version is not known."""
    version = _installed()
    return version is None or _minor(version) >= needed


def _installed() -> str | None:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def _minor(version: str) -> Version:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
