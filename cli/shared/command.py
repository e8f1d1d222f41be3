"""A Typer app of one command, or of one group of commands, in the program's style.

Wrong arguments are reported before the command does anything. A shell passes any bytes; names and
keys are text, so bytes that are no UTF-8 are refused here, for every command. Paths may have any
bytes. What is expected to go wrong ends every command in one line (failures.py).

Options that belong together on many commands are declared once, in a dataclass:

    @dataclass                                    @app.command("rebuild")
    class StoreSizes:                             def rebuild(store: Store, *, sizes: StoreSizes)
        index_slots: IndexSlots = 5_000_000
        index_entries: IndexEntries = ...         rebuild STORE [--index-slots N] ...

Such a parameter stands for the fields of its dataclass, in its place: typer sees only those. The
command gets the object.
"""

import functools
import inspect
import shlex
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from . import connecting
from .exit_codes import epilog
from .failures import one_line_errors

_CONNECTING = "tandemlog.connecting"


@dataclass(frozen=True, slots=True)
class Call:
    """What was called, for a report: the command with its words, and its arguments by name. The
    options that say how to connect are left out, since they may hold a token."""

    words: str
    arguments: tuple[tuple[str, str], ...]


_context: ContextVar[Any] = ContextVar("tandemlog.context")


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
        _context.set(ctx)
        with one_line_errors():
            return super().invoke(ctx)

    def _connect(self, ctx: Any) -> None:
        name = connecting.ENDPOINT
        places = (ctx.meta.get(_CONNECTING, {}), ctx.find_root().params)
        if name not in ctx.params:
            connecting.choose_later(*places)
            return
        source = ctx.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        endpoint = connecting.choose(*places, endpoint=ctx.params[name] if is_given else "")
        if endpoint:
            ctx.params[name] = endpoint


def call() -> Call:
    """That of the command that runs."""
    ctx = _context.get()
    words, arguments = [ctx.command_path], []
    for parameter in ctx.command.params:
        value, source = ctx.params.get(parameter.name), ctx.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE" or value is None:
            continue
        if parameter.param_type_name == "argument":
            words.append(shlex.quote(str(value)))
            arguments.append((parameter.name.capitalize(), str(value)))
        elif isinstance(value, bool):
            words += (parameter.opts if value else parameter.secondary_opts)[:1]
        else:
            words += [parameter.opts[0], shlex.quote(str(value))]
    return Call(" ".join(words), tuple(arguments))


class CommandApp(typer.Typer):
    """Its commands are TextCommands, whose parameters may be groups of options."""

    def command(self, *args: Any, **settings: Any) -> Any:
        add = super().command(*args, **{"cls": TextCommand, "epilog": epilog(), **settings})

        def decorate(command: Callable[..., None]) -> Callable[..., None]:
            add(with_groups(command))
            return command

        return decorate


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


def with_groups(command: Callable[..., None], **others: type) -> Callable[..., None]:
    """The command as typer is to see it; every field of a group has a default. `others` names the
    parameters whose group is another than the command says: one that is derived from it."""
    hints = get_type_hints(command, include_extras=True) | others
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            parameters += _parameters_of(kind)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))
    if not groups:
        return command

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
