"""RocketMQ's own integration tests, as released, against a cluster that runs already.

    PYTHONPATH=.:tests python -m interop.integration_tests              all that can run
    ... python -m interop.integration_tests --at broker                 at RocketMQ's own broker
    ... python -m interop.integration_tests client.producer.order.OrderMsgIT

The tests extend a class that starts brokers in their process. In its place integration/java has
one that takes where a cluster is, and the compiled test classes run as they are (`run`). The
program prints what came of each class and ends with 1 if that is not what
integration/outcomes.toml says.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from interop.integration_outcomes import Outcome, Ran, Result, outcomes, surprises
from interop.jars import java_of_tests
from interop.nodes_for_clients import a_broker_for_its_tests, a_node, three_nodes
from interop.rocketmq import BROKER_NAME, CLUSTER

LIMIT_S = 300
"""For one class."""
AT_ONCE = 2
"""Processes. Most tests wait most of the time."""

Place = Callable[[Path], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def _one_node(folder: Path) -> Iterator[str]:
    with a_node(folder) as node:
        yield node.address


PLACES: Mapping[str, Place] = {
    "nodes": three_nodes,
    "node": _one_node,
    "broker": a_broker_for_its_tests,
}


def run(
    classes: Sequence[str], name_servers: str, home: Path, *, limit_s: int = LIMIT_S
) -> Iterator[Ran]:
    """Run the classes in one process, or one more after each class that takes too long."""
    left = list(classes)
    settings = {
        "name.servers": name_servers,
        "cluster.name": CLUSTER,
        "broker.name": BROKER_NAME,
        "java.io.tmpdir": str(home),
    }
    while left:
        command = java_of_tests("RunTests", str(limit_s), *left, home=home, settings=settings)
        with (
            (home / "tests.log").open("ab") as log,
            subprocess.Popen(
                command, cwd=home, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    row = json.loads(line)
                    if "result" in row:
                        yield _ran(row)
                    if row.get("result", Result.TIMEOUT) == Result.TIMEOUT:
                        left.remove(row["class"])
            finally:
                process.kill()
        if process.returncode not in (0, 3):
            raise RuntimeError(f"ended with {process.returncode} before {left[0]}: {log.name}")


def _ran(row: Mapping[str, Any]) -> Ran:
    error = f"{row.get('error', '')} {row.get('at', '')}".strip()
    return Ran(row["class"], row["test"], Result(row["result"]), error)


def run_all(classes: Sequence[str], place: Place, folder: Path) -> Iterator[list[Ran]]:
    """What came of each class, some at the same time."""
    with place(folder) as name_servers, ThreadPoolExecutor(AT_ONCE) as threads:

        def one(numbered: tuple[int, str]) -> list[Ran]:
            number, name = numbered
            return list(run([name], name_servers, folder / f"tests-{number}"))

        yield from threads.map(one, enumerate(classes))


def _report(at: str, expected: Mapping[str, Outcome], folder: Path) -> list[str]:
    found = []
    for rows in run_all(list(expected), PLACES[at], folder / at):
        outcome = expected[rows[0].name]
        passed = sum(each.result is Result.PASSED for each in rows)
        print(f"{at}: {outcome.name}: {passed} of {len(rows)} pass", flush=True)
        found += surprises(outcome, rows, at)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="RocketMQ's own integration tests")
    parser.add_argument("--at", choices=[*PLACES], help="nodes (three) and node if not given")
    parser.add_argument("classes", nargs="*", help="below org.apache.rocketmq.test")
    arguments = parser.parse_args()
    known = {each.name: each for each in outcomes()}
    chosen = {
        name: each
        for name, each in known.items()
        if (name in arguments.classes if arguments.classes else not each.not_run)
    }
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        if arguments.at:
            found = _report(arguments.at, chosen, Path(name))
        else:
            found = _report("nodes", chosen, Path(name))
            alone = {name: each for name, each in chosen.items() if each.passes_alone}
            found += _report("node", alone, Path(name)) if alone else []
    print(f"{time.monotonic() - start:.0f} s", *found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
