"""What the program's exit code means; part of its interface, documented in --help."""

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
    OK: "done",
    FAULT: "a fault was found (verify), or something failed unexpectedly",
    USAGE: "a wrong option, argument or configuration",
    UNREACHABLE: "no node, or no master, could be reached",
    NOT_FOUND: "no such topic, queue, group or message",
    REFUSED: "a node refused: nothing was done",
    UNKNOWN_OUTCOME: "messages were sent and nobody knows whether they are stored",
    STORE: "the store cannot be used: locked by a process, layout, corruption, disk",
    ADDRESS: "an address to listen on is taken, or not this machine's",
    INTERRUPTED: "ended by Ctrl-C",
}


def epilog() -> str:
    """The table for --help."""
    rows = " · ".join(f"{code} {meaning}" for code, meaning in MEANING.items())
    return f"Exit codes: {rows}."
