"""`tandemlog node`: one node of a cluster, until a signal stops it."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from tandemlog_server.node.preflight import faults, folder_of, warnings
from tandemlog_server.node.process.log_setup import set_up_logging
from tandemlog_server.node.process.process_setup import end_with_parent, prepare_process
from tandemlog_server.node.run import run_node
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.node.settings.node_config import NodeConfig

from ..shared.command import new_app
from ..shared.exit_codes import ADDRESS
from ..shared.failures import CommandError, exit_code_of

app = new_app()


@app.command("node")
def node_command(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="TOML configuration file, see docs/configuration.md. Without it, the node uses "
            "the defaults and the TANDEMLOG_ environment variables.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Say what would keep the node from starting, one line each, and start nothing: "
            "settings, addresses, the store's folder and owner, certificates, the clock. Exit code "
            "0 if it would start.",
        ),
    ] = False,
    with_parent: Annotated[int | None, typer.Option("--with-parent", hidden=True)] = None,
) -> None:
    """Run one node, a master or a slave, as its configuration says.

    SIGTERM and Ctrl-C stop it cleanly: it refuses new puts, finishes those in progress, then
    flushes and closes its store.
    """
    if with_parent is not None:
        # started by `up`, which has the last word: it stops its nodes in order, and a Ctrl-C
        # of the terminal reaches them too
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_parent(with_parent)
    settings = load_config(config)
    if check:
        _check(settings)
        return
    for fault in faults(settings):
        raise _failure(fault)
    set_up_logging(
        settings.log.level,
        node_id=settings.node_id,
        cluster_id=settings.cluster_id,
        form=settings.log.format,
    )
    prepare_process()
    try:
        asyncio.run(run_node(settings, path=config, ignore_interrupt=with_parent is not None))
    except ListenError as error:
        raise _failure(error) from None


def _check(settings: NodeConfig) -> None:
    """Every fault on stderr; the exit code is the first one's."""
    failures = [_failure(fault) for fault in faults(settings)]
    for warning in warnings(settings):
        typer.echo(f"warning: {warning}", err=True)
    if failures:
        text = "\n".join(str(each) for each in failures)
        raise CommandError(text, failures[0].exit_code)
    typer.echo(
        f"node {settings.node_id} of cluster {settings.cluster_id} would start with the store in "
        f"{folder_of(settings)}"
    )


def _failure(fault: Exception) -> CommandError:
    code = ADDRESS if isinstance(fault, ListenError) else exit_code_of(fault)
    return CommandError(str(fault), code)
