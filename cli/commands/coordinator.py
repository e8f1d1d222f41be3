"""`tandemlog coordinator`: the embedded coordinator, until a signal stops it."""

import asyncio
import signal
import sqlite3
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tandemlog_server.node.embedded_coordinator.database import DataError
from tandemlog_server.node.embedded_coordinator.protection import Protection
from tandemlog_server.node.embedded_coordinator.server import run_coordinator
from tandemlog_server.node.process.log_setup import set_up_logging
from tandemlog_server.node.process.process_setup import end_with_parent, prepare_process
from tandemlog_server.node.security.coordinator_tls import CoordinatorFiles, CoordinatorTls
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.node.settings.security_sections import is_loopback

from ..shared.command import new_app
from ..shared.exit_codes import ADDRESS, STORE
from ..shared.failures import CommandError

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


REQUIRED, NONE = "required", "none"


@app.command("coordinator")
def coordinator_command(
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where its data is kept; made if missing. One process at a time uses it.",
        ),
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=_endpoint,
            help="Where to serve etcd's API. An address that other machines reach needs TLS and "
            "required client certificates.",
        ),
    ] = "127.0.0.1:2379",
    ca_file: Annotated[
        str,
        typer.Option(
            "--ca-file", metavar="FILE", help="Authority of the callers' certificates, in PEM."
        ),
    ] = "",
    cert_file: Annotated[
        str,
        typer.Option(
            "--cert-file",
            metavar="FILE",
            help="Certificate of the coordinator; given, it serves by TLS only. Replaced files "
            "are used without a restart.",
        ),
    ] = "",
    key_file: Annotated[
        str, typer.Option("--key-file", metavar="FILE", help="Its key, without a password.")
    ] = "",
    client_certificates: Annotated[
        str,
        typer.Option(
            "--client-certificates",
            metavar="required|none",
            help="Whether callers must show a certificate of the authority: that of a node, of a "
            "coordinator, or of a client in --allow-client. [default: required with --ca-file]",
        ),
    ] = "",
    allow_client: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-client",
            metavar="NAME",
            help="Client whose certificate is accepted too, for etcdctl; may be repeated.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen on an address that other machines reach although all who reach it can "
            "change everything.",
        ),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people, or one JSON object a line.")
    ] = LogFormat.TEXT,
    with_parent: Annotated[int | None, typer.Option("--with-parent", hidden=True)] = None,
) -> None:
    """Run the embedded coordinator: etcd's v3 API, as far as nodes use it, by one process.

    What it has acknowledged is on its disk, and a restart continues with it. It is not highly
    available: while it is down, nodes keep their roles, and there is no failover. Where that is not
    enough, run etcd instead. `etcdctl` works with both.

    SIGTERM and Ctrl-C stop it cleanly.
    """
    if with_parent is not None:
        # as a node: see run_node.py
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_parent(with_parent)
    tls = _tls(ca_file, cert_file, key_file, client_certificates)
    required = tls is not None and client_certificates != NONE
    _check_reach(listen, protected=required, insecure=insecure)
    set_up_logging("info", node_id="coordinator", form=log_format.value)
    prepare_process()
    try:
        ignore = with_parent is not None
        clients = frozenset(allow_client or ())
        asyncio.run(_run(directory, listen, tls, clients, required=required, ignore=ignore))
    except ListenError as error:
        raise CommandError(str(error), ADDRESS) from None
    except DataError as error:
        raise CommandError(str(error), STORE) from None
    except sqlite3.Error as error:
        text = f"{directory}: a commit failed, the coordinator has stopped: {error}"
        raise CommandError(text, STORE) from None


def _tls(ca_file: str, cert_file: str, key_file: str, wanted: str) -> CoordinatorTls | None:
    if wanted not in ("", REQUIRED, NONE):
        raise typer.BadParameter(f"--client-certificates must be {REQUIRED} or {NONE}")
    if bool(cert_file) != bool(key_file) or (ca_file and not cert_file):
        raise typer.BadParameter("TLS needs both --cert-file and --key-file")
    if wanted == REQUIRED and not ca_file:
        raise typer.BadParameter("--client-certificates required needs --ca-file, and a pair")
    if not cert_file:
        return None
    if wanted != NONE and not ca_file:
        raise typer.BadParameter(
            "give --ca-file, whose certificates callers must show, or --client-certificates none"
        )
    files = CoordinatorFiles(ca_file, cert_file, key_file)
    return CoordinatorTls(files, certificates_required=wanted != NONE)


def _check_reach(listen: str, *, protected: bool, insecure: bool) -> None:
    host = split_endpoint(listen)[0]
    if not (protected or insecure or is_loopback(host)):
        raise ConfigError(
            f"--listen: other machines reach {host}, and all who reach a coordinator decide who "
            "leads: give --ca-file, --cert-file and --key-file, so that callers must show a "
            "certificate; or listen on 127.0.0.1; or, where every machine of the network is "
            "trusted, --insecure"
        )


async def _run(
    directory: Path,
    listen: str,
    tls: CoordinatorTls | None,
    clients: frozenset[str],
    *,
    required: bool,
    ignore: bool,
) -> None:
    protection = watching = None
    if tls is not None:
        protection = Protection(tls.served.grpc_credentials, required, clients)
        watching = asyncio.create_task(tls.watch())
    try:
        await run_coordinator(directory, listen, ignore_interrupt=ignore, protection=protection)
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
