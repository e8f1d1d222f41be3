"""`tandemlog certs`: a small authority, and the certificates of a cluster."""

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog_server.node.certs.authority import CertificateError
from tandemlog_server.node.certs.description import (
    described,
    fits_key,
    is_signed_by,
    read_certificate,
)
from tandemlog_server.node.certs.folder import (
    AUTHORITY,
    certificate_file,
    cluster_in,
    key_file,
    make_authority,
    make_certificate,
)
from tandemlog_server.node.certs.owners import Owner, OwnerKind

from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.exit_codes import FAULT, STORE
from ..shared.failures import CommandError, ending_with
from ..shared.options import FormatOption

app = new_app("Make and show certificates: for those who have no authority of their own.")

AUTHORITY_DAYS = 3650
DAYS = 365

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the authority: ca.crt and ca.key.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME|IP",
        help="Name or address at which callers reach it; may be repeated.",
    ),
]
Days = Annotated[
    float,
    typer.Option(
        "--days",
        min=0.001,
        max=36_500,
        help="How long it is valid; at most as long as the authority.",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Where to write it. [default: DIR]")
]
ClusterName = Annotated[str, typer.Option("--cluster", help="Name of the cluster: its cluster_id.")]
COLUMNS = ("file", "name", "kind", "cluster", "hosts", "until", "state", "issuer", "fits_key")


@app.command("authority")
def authority(
    directory: Folder,
    cluster: ClusterName = "tandemlog",
    days: Annotated[
        float, typer.Option("--days", min=0.001, max=36_500, help="How long it is valid.")
    ] = AUTHORITY_DAYS,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an authority that exists.")
    ] = False,
) -> None:
    """Make an authority in DIR: a certificate, ca.crt, and its key, ca.key.

    Everyone who has the key can make certificates that the cluster accepts: keep the folder on a
    machine of the operators, and copy to each node only ca.crt and its own pair.
    """
    with ending_with(STORE, CertificateError, ValueError):
        _show_files(make_authority(directory, _checked_cluster(cluster), days, _now(), force=force))


@app.command("node")
def node(
    directory: Folder,
    node_id: Annotated[str, typer.Argument(metavar="NODE_ID")],
    host: Hosts = None,
    days: Days = DAYS,
    out: Out = None,
) -> None:
    """Make or renew the certificate of a node: NODE_ID.crt and NODE_ID.key.

    A running node reads both again by itself.
    """
    _make(directory, OwnerKind.NODE, node_id, host, days, out)


@app.command("coordinator")
def coordinator(
    directory: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    host: Hosts = None,
    days: Days = DAYS,
    out: Out = None,
) -> None:
    """Make or renew the certificate of a coordinator: of `tandemlog coordinator`, or of a member of
    etcd."""
    _make(directory, OwnerKind.COORDINATOR, name, host, days, out)


@app.command("client")
def client(
    directory: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    days: Days = DAYS,
    out: Out = None,
) -> None:
    """Make or renew the certificate of a client: NAME.crt and NAME.key.

    The access file gives rights to NAME (`certificates`).
    """
    _make(directory, OwnerKind.CLIENT, name, None, days, out)


@app.command("cluster")
def cluster_command(
    directory: Folder,
    cluster: ClusterName = "tandemlog",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes",
            metavar="ID=HOST[+HOST…][,…]",
            help="The nodes and where each is reached, as n0=db0.example+10.0.0.1,n1=db1.example.",
        ),
    ] = "",
    coordinators: Annotated[
        str,
        typer.Option(
            "--coordinators",
            metavar="NAME=HOST[+HOST…][,…]",
            help="The coordinators, in the same form.",
        ),
    ] = "",
    clients: Annotated[
        str, typer.Option("--clients", metavar="NAME[,…]", help="The clients.")
    ] = "",
    days: Days = DAYS,
) -> None:
    """Make all certificates of a cluster: the authority, unless DIR has one, and a pair for each
    node, coordinator and client.

    Run it again to renew them all.
    """
    servers = [
        (kind, *each)
        for kind, text in ((OwnerKind.NODE, nodes), (OwnerKind.COORDINATOR, coordinators))
        for each in _servers(text)
    ]
    callers = [each for each in clients.split(",") if each]
    if not servers and not callers:
        raise typer.BadParameter("give --nodes, --coordinators or --clients")
    with ending_with(STORE, CertificateError, ValueError):
        cluster = _checked_cluster(cluster)
        owners = [(Owner(cluster, kind, name), hosts) for kind, name, hosts in servers]
        owners += [(Owner(cluster, OwnerKind.CLIENT, name), []) for name in callers]
        twice = [o.name for o, _ in owners if [e.name for e, _ in owners].count(o.name) > 1]
        if twice:
            raise CertificateError(f"{twice[0]} is named twice: each needs a file of its own")
        if not certificate_file(directory, AUTHORITY).exists():
            _show_files(make_authority(directory, cluster, AUTHORITY_DAYS, _now()))
        elif (name := cluster_in(directory)) != cluster:
            raise CertificateError(
                f"{directory} is the authority of the cluster {name!r}, not of {cluster!r}"
            )
        for owner, hosts in owners:
            _show_files(make_certificate(directory, owner, hosts, days, _now()))


@app.command("show")
def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Certificates in PEM.")],
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--authority",
            metavar="FILE",
            help="The authority to compare with. [default: ca.crt beside each FILE]",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show certificates: whose, for which hosts, until when, signed by whom, fitting which key.

    Ends with 1 if one of them has expired, is not signed by the authority or does not fit the key
    beside it.
    """
    with ending_with(STORE, CertificateError, ValueError):
        rows = [_row(file, ca_file) for file in files]
        write_rows(rows, form, COLUMNS)
        faults = [
            f"{row['file']}: {fault}"
            for row in rows
            for fault, there in (
                (row["state"], row["state"] != "valid"),
                ("does not fit its key", row["fits_key"] is False),
                ("not signed by the authority", row["signed_by_authority"] is False),
            )
            if there
        ]
        if faults:
            raise CommandError("\n".join(faults), FAULT)


def _row(file: Path, ca_file: Path | None) -> dict[str, Any]:
    certificate = read_certificate(file.read_bytes(), str(file))
    beside = file.with_suffix(".key")
    authority_file = ca_file or certificate_file(file.parent, AUTHORITY)
    fits = signed = None
    if beside.exists() and beside != file:
        fits = fits_key(certificate, beside.read_bytes(), str(beside))
    if authority_file.exists():
        issuer = read_certificate(authority_file.read_bytes(), str(authority_file))
        signed = is_signed_by(certificate, issuer)
    row = {"file": str(file), **described(certificate, _now())}
    return {**row, "fits_key": fits, "signed_by_authority": signed}


def _make(
    directory: Path,
    kind: OwnerKind,
    name: str,
    hosts: list[str] | None,
    days: float,
    out: Path | None,
) -> None:
    with ending_with(STORE, CertificateError, ValueError):
        owner = Owner(cluster_in(directory), kind, name)
        _show_files(make_certificate(directory, owner, hosts or [], days, _now(), out))


def _servers(text: str) -> list[tuple[str, list[str]]]:
    servers = []
    for each in filter(None, text.split(",")):
        name, equals, hosts = each.partition("=")
        if not equals or not hosts:
            raise typer.BadParameter(f"{each!r} is not NAME=HOST or NAME=HOST+HOST")
        servers.append((name, hosts.split("+")))
    return servers


def _checked_cluster(cluster: str) -> str:
    if not 1 <= len(cluster) <= 64:
        raise CertificateError(
            "the name of the cluster must have 1 to 64 characters to stand in a certificate"
        )
    return cluster


def _show_files(file: Path) -> None:
    typer.echo(f"{file}  {key_file(file.parent, file.stem)}")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
