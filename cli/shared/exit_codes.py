"""What the program's exit code means; part of its interface.

`tandemlog --help` and docs/cli.md have the table; the help of a command names both in one line.
"""

OK = 0
FAULT = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
REFUSED = 5
UNKNOWN_OUTCOME = 6
STORE = 7
ADDRESS = 8
INTERRUPTED = 130

MEANING = {
    OK: "success",
    FAULT: "a check found something wrong, or something failed unexpectedly",
    USAGE: "wrong option, argument or configuration",
    UNREACHABLE: "no node, no master, or no coordinator could be reached",
    NOT_FOUND: "no such topic, queue, group or message",
    REFUSED: "a node refused the request; nothing was done",
    UNKNOWN_OUTCOME: "messages or a change were sent, but it is unknown whether they are stored",
    STORE: "the store cannot be used: locked by a process, wrong layout, corruption, disk failure",
    ADDRESS: "an address to listen on is in use, or does not belong to this machine",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def epilog() -> str:
    """The last line of a command's help."""
    return "Exit codes: see `tandemlog --help`, or docs/cli.md."


def table() -> str:
    """The exit codes for the help of the program."""
    rows = " · ".join(f"{code} {meaning}" for code, meaning in MEANING.items())
    return f"Exit codes: {rows}."
