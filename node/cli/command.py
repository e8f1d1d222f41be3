"""A Typer app of one command, or of one group of commands, in the program's style."""

import typer

from .exit_codes import epilog


def new_app(help_text: str | None = None) -> typer.Typer:
    """No completion options on every command, plain help, our exit codes below it."""
    return typer.Typer(
        help=help_text,
        epilog=epilog(),
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=help_text is not None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
