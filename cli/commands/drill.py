"""`tandemlog drill`: does this cluster keep what it acknowledges? Try it, on this machine."""

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tandemlog import Admin
from tandemlog.format.calls import DEFAULT_PORT

from ..local.drills import QUEUES, TOPIC, Account, Drill, Load, Round
from ..local.local_cluster import LocalCluster, Wishes, plan_cluster
from ..local.local_coordinator import EMBEDDED, ETCD
from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.exit_codes import FAULT
from ..shared.failures import CommandError
from ..shared.options import FormatOption

FAULTS = ("kill-master", "pause-master", "kill-slave", "switchover")

app = new_app()


@app.command("drill")
def drill_command(
    fault: Annotated[
        str, typer.Argument(metavar="FAULT", help=f"One of {', '.join(FAULTS)}.")
    ] = "kill-master",
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="How often.")] = 3,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_000, help="As for `tandemlog up`.")
    ] = DEFAULT_PORT + 1_000,
    etcd: Annotated[
        bool, typer.Option("--etcd", help="Elect by three members of etcd, as `tandemlog up`.")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS, certificates and tokens, as `tandemlog up`.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a cluster of three in a temporary folder, put messages, and break something each round.

    Prints for each round how many seconds passed without an acknowledged put, and at the end what
    came of all messages. Ends with 0 only if no acknowledged message is lost and none is there
    twice. Nothing outside the temporary folder is touched.
    """
    if fault not in FAULTS:
        raise typer.BadParameter(f"FAULT must be one of {', '.join(FAULTS)}, not {fault!r}")
    with tempfile.TemporaryDirectory(prefix="tandemlog-drill-") as folder:
        coordinator = ETCD if etcd else EMBEDDED
        played, account = _play(Path(folder), fault, rounds, port, coordinator, secure=secure)
        _show(played, account, form)
    if account.lost or account.duplicated:
        raise CommandError(
            f"{account.lost} acknowledged messages are lost, {account.duplicated} are there twice",
            FAULT,
        )


def _play(
    folder: Path, fault: str, rounds: int, port: int, coordinator: str, *, secure: bool
) -> tuple[list[Round], Account]:
    wishes = Wishes(slaves=2, min_in_sync=2, coordinator=coordinator, secure=secure)
    cluster = LocalCluster(folder, plan_cluster(folder, wishes), port)
    cluster.check_ports()
    cluster.write()
    cluster.start()
    try:
        endpoints = cluster.endpoints.split(",")
        with Admin(endpoints, security=cluster.client) as admin:
            load = Load(endpoints, cluster.client)
            drill = Drill(cluster, load, admin)
            drill.wait_in_sync()
            admin.create_topic(TOPIC, QUEUES)
            with load:
                played = [drill.play(fault) for _ in range(rounds)]
            return played, drill.account()
    finally:
        cluster.stop()


def _show(played: list[Round], account: Account, form: Format) -> None:
    rows = [
        {**asdict(each), "seconds": round(each.seconds, 3), "round": number}
        for number, each in enumerate(played, 1)
    ]
    times = [each.seconds for each in played]
    total = {
        "rounds": len(played),
        "median_seconds": round(statistics.median(times), 3),
        "worst_seconds": round(max(times), 3),
        **asdict(account),
    }
    write_rows(rows if form is Format.TABLE else [*rows, total], form)
    if form is Format.TABLE:
        Console(highlight=False).print(
            f"median {total['median_seconds']} s, worst {total['worst_seconds']} s; "
            f"{account.acknowledged} acknowledged, {account.failed} failed, {account.lost} lost, "
            f"{account.duplicated} twice"
        )
