"""Run another program that ends with the process that started it:

    python -m tandemlog_server.node.process.with_parent PID PROGRAM [ARGUMENT ...]

The wish to end with the parent is the process's own and survives the exec, as does that a
terminal's Ctrl-C is ignored.
"""

import os
import signal
import sys

from .process_setup import end_with_parent


def main() -> None:
    parent, program, *arguments = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(int(parent))
    os.execvp(program, [program, *arguments])


if __name__ == "__main__":
    main()
