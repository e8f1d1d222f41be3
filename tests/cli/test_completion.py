"""What the shell completes: commands, options, and names that the cluster knows."""

import subprocess
import sys

import pytest

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    run_of_a_test,
)
from tandemlog_server.node.node import Node


def completed(words: str, *, endpoint: str = "127.0.0.1:1") -> list[str]:
    """What bash is given for a line that ends in the last of `words`."""
    ended = subprocess.run(
        [sys.executable, "-c", "from cli.app import main; main()"],
        env={
            "_TANDEMLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": f"tandemlog {words}",
            "COMP_CWORD": str(len(words.split()) + words.endswith(" ")),
            "TANDEMLOG_ENDPOINT": endpoint,
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"), [("swi", ["switchover"]), ("pull t --exit", ["--exit-on-idle"])]
)
def test_commands_and_options(words: str, found: list[str]) -> None:
    assert completed(words) == found


def test_names_that_the_cluster_knows(run: Run, node: Node) -> None:
    for name in ("orders-eu", "orders-us", "bills"):
        run("topic", "create", name)
    run("put", "bills", stdin=b"x\n")
    run("pull", "bills", "--group", "billing")
    endpoint = node.endpoints.listen
    assert sorted(completed("pull ord", endpoint=endpoint)) == ["orders-eu", "orders-us"]
    assert completed("pull bills --group bi", endpoint=endpoint) == ["billing"]


def test_without_a_cluster_nothing_is_completed_and_nothing_said() -> None:
    assert completed("pull ord") == []
