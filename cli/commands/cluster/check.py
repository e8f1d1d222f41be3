"""`tandemlog check`: one line and an exit code for monitoring."""

from typing import Annotated

import typer

from tandemlog.errors import TandemlogError

from ...cluster.verdict import Level, Verdict, judge
from ...shared.command import new_app
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, Timeout

app = new_app()

_CODES = (
    "Exit codes: 0 OK · 1 WARNING: a node is missing or not in sync, no slave could take over now, "
    "failover is paused, or the master does not reach the coordinator · 2 CRITICAL: there is no "
    "master, it acknowledges no puts, or an alarm is on · 3 UNKNOWN: no node could be reached."
)


@app.command("check", epilog=_CODES)
def check_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Check whether the cluster is well and could lose its master now.

    Prints one line, as monitoring systems expect of a plugin; the exit code is the verdict.
    """
    try:
        verdict = judge(run_admin(endpoint, timeout, lambda admin: admin.cluster()))
    except TandemlogError as error:
        verdict = Verdict(Level.UNKNOWN, (str(error),))
    if not quiet:
        typer.echo(verdict.line)
    raise typer.Exit(int(verdict.level))
