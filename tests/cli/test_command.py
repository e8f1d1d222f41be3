"""Options that are declared once, on commands that typer sees."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tandemlog_server.cli.shared.command import with_groups


@dataclass(frozen=True, slots=True)
class Sizes:
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many.")] = 5
    wide: Annotated[bool, typer.Option("--wide", help="All columns.")] = False


seen: list[tuple[str, Sizes, str]] = []
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@with_groups
def show(
    name: Annotated[str, typer.Argument()],
    *,
    sizes: Sizes,
    form: Annotated[str, typer.Option("--form")] = "table",
) -> None:
    """Shows NAME."""
    seen.append((name, sizes, form))


def test_the_command_gets_its_group() -> None:
    seen.clear()
    assert CliRunner().invoke(app, ["x", "--rows", "7", "--wide", "--form", "json"]).exit_code == 0
    assert CliRunner().invoke(app, ["y"]).exit_code == 0
    assert seen == [("x", Sizes(7, True), "json"), ("y", Sizes(5, False), "table")]


def test_help_shows_the_options_in_the_groups_place() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Shows NAME." in shown
    places = [shown.index(option) for option in ("--rows", "--wide", "--form")]
    assert places == sorted(places)


def test_what_an_option_refuses_it_refuses_in_a_group() -> None:
    refused = CliRunner().invoke(app, ["x", "--rows", "0"])
    assert refused.exit_code == 2
    assert "--rows" in refused.output
