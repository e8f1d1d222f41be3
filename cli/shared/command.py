"""A Typer app of one command, or of one group of commands, in the program's style.

Wrong arguments are reported before the command does anything. A shell passes any bytes; names and
keys are text, so bytes that are no UTF-8 are refused here, for every command. Paths may have any
bytes.
"""

from typing import Any

import typer
from typer.core import TyperCommand

from . import connecting
from .exit_codes import epilog

_CONNECTING = "tandemlog.connecting"


class TextCommand(TyperCommand):
    """A command whose texts are UTF-8. One with --endpoint also takes the options that say how to
    connect (connecting.py)."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if any(parameter.name == connecting.ENDPOINT for parameter in self.params):
            args, ctx.meta[_CONNECTING] = connecting.taken_out(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        for parameter in ctx.command.params:
            value = ctx.params.get(parameter.name)
            for text in value if isinstance(value, list | tuple) else (value,):
                if isinstance(text, str) and not _is_utf8(text):
                    raise typer.BadParameter(f"not valid UTF-8: {text!r}", ctx=ctx, param=parameter)
        self._connect(ctx)
        return super().invoke(ctx)

    def _connect(self, ctx: Any) -> None:
        name = connecting.ENDPOINT
        places = (ctx.meta.get(_CONNECTING, {}), ctx.find_root().params)
        if name not in ctx.params:
            connecting.settle_later(*places)
            return
        source = ctx.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        found = connecting.settle(*places, endpoint=ctx.params[name] if given else "")
        if found:
            ctx.params[name] = found


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
