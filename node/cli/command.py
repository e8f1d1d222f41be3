"""A Typer app of one command, or of one group of commands, in the program's style.

Wrong arguments are reported before the command does anything. A shell passes any bytes; names and
keys are text, so bytes that are no UTF-8 are refused here, for every command. Paths may have any
bytes.
"""

from typing import Any

import typer
from typer.core import TyperCommand

from .exit_codes import epilog


class TextCommand(TyperCommand):
    """A command whose texts are UTF-8."""

    def invoke(self, ctx: Any) -> Any:
        for parameter in ctx.command.params:
            value = ctx.params.get(parameter.name)
            for text in value if isinstance(value, list | tuple) else (value,):
                if isinstance(text, str) and not _is_utf8(text):
                    raise typer.BadParameter(f"not valid UTF-8: {text!r}", ctx=ctx, param=parameter)
        return super().invoke(ctx)


class CommandApp(typer.Typer):
    """Its commands are TextCommands."""

    def command(self, *args: Any, **settings: Any) -> Any:
        return super().command(*args, **{"cls": TextCommand, **settings})


def new_app(help_text: str | None = None) -> typer.Typer:
    """No completion options on every command, plain help, our exit codes below it."""
    return CommandApp(
        help=help_text,
        epilog=epilog(),
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=help_text is not None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
