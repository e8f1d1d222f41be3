"""`tandemlog coordinator`: the embedded coordinator, until a signal stops it."""

import asyncio
import signal
import sqlite3
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ...coordinator.database import DataError
from ...coordinator.server import run_coordinator
from ...process.log_setup import set_up_logging
from ...process.process_setup import end_with_parent, prepare_process
from ...settings.config import split_endpoint
from ...settings.endpoints import ListenError
from ..command import new_app
from ..exit_codes import ADDRESS, STORE, epilog
from ..failures import CommandError, one_line_errors

app = new_app()


class LogFormat(Enum):
    """As [log] format of a node."""

    TEXT = "text"
    JSON = "json"


def _endpoint(text: str) -> str:
    try:
        split_endpoint(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@app.command("coordinator", epilog=epilog())
def coordinator_command(
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where its data is kept; made if missing. One process at a time uses it.",
            show_default=False,
        ),
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=_endpoint,
            help="Where to serve etcd's API. There is no password and no TLS: all who reach "
            "this address can change everything.",
        ),
    ] = "127.0.0.1:2379",
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Log lines for people, or one JSON object a line."),
    ] = LogFormat.TEXT,
    with_parent: Annotated[int | None, typer.Option("--with-parent", hidden=True)] = None,
) -> None:
    """Run the embedded coordinator: etcd's v3 API, as far as nodes use it, by one process.

    What it has acknowledged is on its disk, and a restart continues with it. It is not highly
    available: while it is down, nodes keep their roles, and there is no failover. Where that is not
    enough, run etcd instead. `etcdctl` works with both.

    SIGTERM and Ctrl-C stop it cleanly.
    """
    with one_line_errors():
        if with_parent is not None:
            # as a node: see run_node.py
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            end_with_parent(with_parent)
        set_up_logging("info", node_id="coordinator", form=log_format.value)
        prepare_process()
        try:
            asyncio.run(
                run_coordinator(directory, listen, ignore_interrupt=with_parent is not None)
            )
        except ListenError as error:
            raise CommandError(str(error), ADDRESS) from None
        except DataError as error:
            raise CommandError(str(error), STORE) from None
        except sqlite3.Error as error:
            text = f"{directory}: a commit failed, the coordinator has stopped: {error}"
            raise CommandError(text, STORE) from None
