"""The README's tour and docs/quickstart.md are true: their commands and programs run, in order, on
real processes, on one cluster.

The README's Python example runs twice: most readers do that. On the other page a comment
`<!-- test: wait for … -->` says what a reader sees before the next command.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents.pages import DOCS, README, assert_shows, steps
from documents.terminal import Terminal
from helpers.running import wait_until
from tandemlog import Admin, errors
from tandemlog_server.node.settings.config_loading import load_config

pytestmark = [pytest.mark.cluster, pytest.mark.lane("session")]

QUICK_START = DOCS / "quickstart.md"
GROUP = "billing"
ENDS_BY_INTERRUPT = 130


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("walk")) as terminal:
        [up] = [each for each in commands("Start a cluster and use it") if "tandemlog up" in each]
        terminal.up(up)
        yield terminal


def blocks(heading: str, language: str) -> list[str]:
    section = README.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    section = section.split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def commands(heading: str) -> list[str]:
    """Those of the section's shell blocks, without comments."""
    lines = [line for block in blocks(heading, "sh") for line in block.splitlines()]
    return [command for line in lines if (command := re.sub(r"\s+# .*", "", line).strip())]


def test_the_tour(terminal: Terminal) -> None:
    tour = [each for each in commands("Start a cluster and use it") if "tandemlog up" not in each]
    tour = [each for each in tour if not each.startswith("python3 -m venv")]
    assert len(tour) >= 10
    for command in tour:
        code, said = terminal.run(command)
        assert code in ((0, ENDS_BY_INTERRUPT) if "--watch" in command else (0,)), said


def test_the_python_example_runs_twice(terminal: Terminal) -> None:
    [example] = blocks("From Python", "python")
    terminal.write("example.py", example)
    for stored in (4, 4):
        code, said = terminal.run("python example.py")
        assert code == 0, said
        assert len(re.findall(r"^\d+ \d+ b'", said, re.MULTILINE)) == stored


def test_the_quick_start(terminal: Terminal) -> None:
    text = QUICK_START.read_text(encoding="utf-8")
    [up] = [each for each in commands("Start a cluster and use it") if "tandemlog up" in each]
    assert up in text
    found = steps(QUICK_START)
    assert len(found) > 15
    for step in found:
        began = time.monotonic()
        if step.program:
            terminal.write(step.program, "\n".join(step.output))
        elif step.directive:
            waited_for(step.directive, terminal.endpoint)
        else:
            code, said = terminal.run(step.command)
            assert code == step.exit_code, f"$ {step.command}\n{said}"
            assert_shows(step, said)
        name = step.command or step.directive or step.program
        print(f"{time.monotonic() - began:.1f} s: {name}")


def waited_for(directive: str, endpoint: str) -> None:
    with Admin(endpoint) as admin:
        if directive == "wait for an empty group":
            wait_until(lambda: f"{directive}: {waiting(admin)}", lambda: waiting(admin) == 0, 120)
        elif directive == "wait for 2 members":
            wait_until(lambda: f"{directive}: {sharing(admin)}", lambda: sharing(admin) == 2, 120)
        else:
            raise AssertionError(f"{directive} is no step")


def waiting(admin: Admin) -> int:
    """How many messages the group has not committed; -1 before its first commit."""
    try:
        found = admin.lag(GROUP)
    except errors.UnknownGroupError:
        return -1
    committed = any(each.committed is not None for each in found)
    return sum(each.messages for each in found) if committed else -1


def sharing(admin: Admin) -> int:
    """How many members of the group have queues."""
    return sum(bool(each.assigned) for each in admin.describe_group(GROUP).members)


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    [text] = blocks("Deploy nodes", "toml")
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert load_config(path).replication.min_in_sync == 2
