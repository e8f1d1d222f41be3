"""docs/cli.md has every command with every option."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from node.cli.app import app

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md").read_text()


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
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
