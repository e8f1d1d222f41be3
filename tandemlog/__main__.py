"""The program: the command `tandemlog`, and `python -m tandemlog`.

It needs what nodes need, which a plain client does not have installed.
"""

import importlib
import sys

from .lazy import server_needs


def main() -> None:
    """Runs the program; without what it needs one sentence on stderr, and exit code 1."""
    try:
        importlib.import_module("tandemlog_server.cli.app").main()
    except ModuleNotFoundError as error:
        missing = server_needs("the program", error)
        if missing is None:
            raise
        sys.exit(f"tandemlog: {missing}")


if __name__ == "__main__":
    main()
