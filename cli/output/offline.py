"""What the commands on a store's files have in common."""

import sys
from collections.abc import Iterable


def say_lines(lines: Iterable[str]) -> None:
    """One finding a line, on stdout."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
