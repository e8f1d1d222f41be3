"""docs/cli.md has every command with every option, and the exit codes once."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tandemlog_server.cli.app import app
from tandemlog_server.cli.docs_page import cli_markdown
from tandemlog_server.cli.shared.exit_codes import MEANING

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if path != "tandemlog":  # its options are the page's first part
        yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), f"{path} {name}")


def sections() -> dict[str, str]:
    """The text below each heading: `# `tandemlog`` and those of the commands."""
    found: dict[str, str] = {}
    for part in f"\n{PAGE}".split("\n#")[1:]:
        heading, _, text = part.partition("\n")
        found[heading.strip("# `")] = text
    return found


@pytest.mark.parametrize(
    ("path", "command"),
    [
        pytest.param(*each, id=each[0])
        for each in commands(typer.main.get_command(app), "tandemlog")
    ],
)
def test_the_page_has_the_command_as_it_is(path: str, command: Any) -> None:
    text = sections().get(path)
    assert text is not None, f"run `make docs`: {path} is not in docs/cli.md"
    shown = [option for option in command.params if not getattr(option, "hidden", False)]
    names = [name for option in shown for name in option.opts if name.startswith("--")]
    missing = [name for name in names if not re.search(rf"{name}(?![\w-])", text)]
    assert not missing, f"run `make docs`: {path} has {missing}"


def test_the_page_is_up_to_date() -> None:
    assert cli_markdown() == PAGE, "run `make docs`"


def test_the_exit_codes_stand_there_once() -> None:
    assert [PAGE.count(meaning) for meaning in MEANING.values() if " " in meaning] == [
        1 for meaning in MEANING.values() if " " in meaning
    ]


def test_the_examples_are_understood() -> None:
    """Parsed by the program, not run."""
    block = PAGE.split("```sh\n")[1].split("```")[0]
    lines = [line.split("#")[0].split("|")[0] for line in block.splitlines()]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(re.sub(r"[<>] \S+", "", line))
        command: Any = typer.main.get_command(app)
        assert words.pop(0) == "tandemlog"
        context = None
        while hasattr(command, "get_command"):
            context = typer.Context(command, parent=context, info_name="tandemlog")
            command = command.get_command(context, words.pop(0))
        command.make_context(command.name, words, parent=context)
