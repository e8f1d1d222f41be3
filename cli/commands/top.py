"""`tandemlog top`: the cluster and its topics in a terminal, live (top/live.py), or as text."""

import asyncio
import signal
import sys
from typing import Annotated

import typer
from rich.console import Console

from tandemlog.admin import AsyncAdmin
from tandemlog.errors import NodeUnavailableError

from ..shared import connecting
from ..shared.command import new_app
from ..shared.online import run_admin
from ..shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, Timeout
from ..top.live import LiveView
from ..top.looks import Looks
from ..top.recent import Recent, after
from ..top.screen import snapshot
from ..top.terminal import Terminal
from ..top.view import Page, View

TEXT_WIDTH = 200
"""Columns of a snapshot that no terminal shows."""

app = new_app()


@app.command("top")
def top_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    page: Annotated[
        Page, typer.Option("--page", help="The page to begin with; the one that is printed once.")
    ] = Page.CLUSTER,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.1,
            max=3_600,
            help="Time between two looks at the cluster.",
        ),
    ] = 1.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Print the page as text after one interval, as without a terminal, and end.",
        ),
    ] = False,
) -> None:
    """Show the cluster and its topics in this terminal, until q is pressed.

    Two pages. cluster: how the cluster is and what to do about it, as `check` says it; each node
    with role, state, lag and disk; why a node is not in the in-sync set; what each takes and gives
    per second, as a plot of the last two minutes; who has led. topics: the rates of each topic,
    and the messages stored since the nodes have started.

    Keys: Tab, c and t choose the page; arrows, j, k, Page Up and Page Down scroll; s sorts topics
    by the next column; / shows only topics whose name has what is typed; q or Ctrl-C ends.

    Rates come from /metrics, so the nodes need an HTTP port; for programs there are `stats` and
    `list` with --format jsonl.
    """
    console, security = Console(highlight=False), connecting.security()
    is_live = sys.stdout.isatty() and not console.is_dumb_terminal and not once

    async def work(admin: AsyncAdmin) -> int:
        looks, view = Looks(admin, security, timeout), View(page=page)
        if not is_live:
            await _print(looks, view, interval, console)
            return 0
        keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        with Terminal(console, keys) as terminal:
            return await LiveView(looks, view, interval, terminal).run()

    if ended_by := run_admin(endpoint, timeout, work):
        signal.raise_signal(ended_by)


async def _print(looks: Looks, view: View, interval_s: float, console: Console) -> None:
    recent = after(Recent(), await looks.first())
    await asyncio.sleep(interval_s)
    recent = after(recent, await looks.next())
    looks.close()
    if not any(node.reachable for node in recent.topology.nodes):
        raise NodeUnavailableError(recent.fault)
    width = console.width if sys.stdout.isatty() else TEXT_WIDTH
    for line in snapshot(recent, view, width).lines:
        typer.echo("".join(segment.text for segment in line).rstrip())
