"""The program `tandemlog`: its commands, found by name and imported only when they run.

`tandemlog dump` must not pay for a server's libraries, and a node that comes back after a crash
must not pay for progress bars: the first acknowledged put waits for both.
"""

import gc
import importlib
import io
import os
import sys
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandemlog_server.ha.protocol.versions import VERSION

from .shared.exit_codes import INTERRUPTED, table

# command: its module in commands/
COMMANDS = {
    "up": "up",
    "node": "run_node",
    "coordinator": "coordinator",
    "topic": "topic",
    "put": "put",
    "pull": "pull",
    "query": "query",
    "delay": "delay",
    "transaction": "transaction",
    "bench": "bench",
    "group": "group",
    "dlq": "dlq",
    "offsets": "offsets",
    "list": "nodes",
    "stats": "stats",
    "top": "top",
    "check": "nodes",
    "topology": "elections",
    "history": "elections",
    "switchover": "elections",
    "failover": "elections",
    "reinit": "elections",
    "takeover": "takeover",
    "pause": "elections",
    "resume": "elections",
    "member": "elections",
    "config": "config",
    "restart": "restart",
    "connections": "nodes",
    "drill": "drill",
    "scrub": "scrub",
    "certs": "certs",
    "token": "token",
    "dump": "store",
    "recover": "store",
    "rebuild": "store",
    "verify": "verify",
    "scan": "scan",
    "export": "export",
    "restore": "restore",
    "backup": "backup",
    "pipeline": "pipeline",
}


class Commands(TyperGroup):
    """Commands by name. The Typer app of a module is a command, or has several of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module_name = COMMANDS.get(cmd_name)
        if module_name is None:
            return None
        module = _imported(f"{__package__}.commands.{module_name}")
        command = typer.main.get_command(module.app)
        command = getattr(command, "commands", {}).get(cmd_name, command)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # a mistyped command is compared with all names without importing them
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}; there are: {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)


def _imported(name: str) -> ModuleType:
    """The module, with all that it imports. Without Python's garbage collector: of modules nearly
    everything stays, and to look at it again and again took an eighth of a node's start."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collects:
            gc.enable()


app = typer.Typer(
    cls=Commands,
    name="tandemlog",
    help="A replicated master/slave message log on the storage design of RocketMQ's broker.",
    epilog=table(),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tandemlog {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="Cluster of ~/.config/tandemlog/clusters.toml that a command connects to. This "
            "and the next options may also stand after the command's name. [env var: "
            "TANDEMLOG_CLUSTER]",
        ),
    ] = "",
    ca_file: Annotated[
        str,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Authorities that may have signed the nodes' certificates; given, connections "
            "use TLS. [env var: TANDEMLOG_CA_FILE]",
        ),
    ] = "",
    cert_file: Annotated[
        str,
        typer.Option(
            "--cert-file",
            metavar="FILE",
            help="Client certificate to show. [env var: TANDEMLOG_CERT_FILE]",
        ),
    ] = "",
    key_file: Annotated[
        str,
        typer.Option("--key-file", metavar="FILE", help="Its key. [env var: TANDEMLOG_KEY_FILE]"),
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token to show. [env vars: TANDEMLOG_TOKEN_FILE; or the token "
            "itself in TANDEMLOG_TOKEN]",
        ),
    ] = "",
    server_name: Annotated[
        str,
        typer.Option(
            "--server-name",
            metavar="NAME",
            help="Name in the nodes' certificates, if it is not the host of the endpoint. [env "
            "var: TANDEMLOG_SERVER_NAME]",
        ),
    ] = "",
) -> None:
    """A replicated master/slave message log on the storage design of RocketMQ's broker."""


def _open_standard_streams() -> None:
    """Where the caller has closed one of the three, a file of the store would get its descriptor,
    and what a library says on stderr would be written into the log: put /dev/null there. A path or
    a topic that the terminal cannot show is shown escaped."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest descriptor that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the program; a wrong option is one line on stderr and exit code 2."""
    _open_standard_streams()
    command = typer.main.get_command(app)
    try:
        code = command.main(prog_name="tandemlog", standalone_mode=False)
    except typer.TyperException as error:
        text = error.format_message()
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tandemlog"
        if text:
            sys.stderr.write(f"tandemlog: {text} (see {path} --help)\n")
        code = error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("tandemlog: interrupted\n")
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
