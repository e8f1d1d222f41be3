"""What RocketMQ's clients that are not written in Java see of a node, by scenarios (scenarios.py).

GO    interop/go prints it in this form
CPP   interop/cpp/classic_program.py; `cpp_seen` gives what it prints this form
"""

import fcntl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from interop.jars import HERE, TARGET

MESSAGES: Final = 20
OF_GO: Final = 25

GO: Final[Mapping[str, Any]] = {
    "sync": {"status 0": 10},
    "batch": {"status 0": 1},
    "async": {"status 0": 5},
    "oneway": 5,
    "retried": {
        "received": [f"key{number:02} {number}" for number in range(OF_GO)],
        "times": {"delivery 0": OF_GO, "delivery 1": 1},
    },
    "pull": [f"key{number:02} body {number}" for number in range(OF_GO)],
    "orderly": {key: [str(number) for number in range(8)] for key in "abc"},
    "delayed": [f"key{number:02} due" for number in range(3)],
    "transactions": ["key02 commit", "key03 commit when asked"],
}
CPP: Final[Mapping[str, Any]] = {
    "sync": {"sync OK": 10},
    "selector": {"orderly OK": 9},
    "pull": [f"key{number:02} body {number}" for number in range(MESSAGES)],
    "shared": {
        "keys": [f"key{number:02} {number} tag" for number in range(MESSAGES)],
        "times": {"delivery 0": MESSAGES},
    },
}


def cpp_seen(printed: Mapping[str, Any]) -> Mapping[str, Any]:
    """By scenario."""
    sent = printed["sent"]
    return {
        "sync": {key: sent[key] for key in sent if key.startswith("sync")},
        "selector": {key: sent[key] for key in sent if key.startswith("orderly")},
        "pull": printed["pulled"],
        "shared": printed["received"],
    }


def go_program() -> Path:
    """Of interop/go, built if anything in it has changed."""
    TARGET.mkdir(exist_ok=True)
    built = TARGET / "go-clients"
    with (TARGET / "go-clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["go", "build", "-o", str(built), "."], cwd=HERE / "go", check=True)
    return built
