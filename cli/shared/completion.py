"""What the shell completes where the cluster knows the names: topics and groups.

A completion that cannot ask (no node, no right to see the names) completes nothing and says
nothing: the user is in the middle of a line.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.errors import TandemlogError
from tandemlog.format.constants import is_system_topic

from . import connecting
from .online import run_admin
from .options import DEFAULT_ENDPOINT

PATIENCE_S = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin so."""

    async def names(admin: AsyncAdmin) -> list[str]:
        return [each.name for each in await admin.topics() if not is_system_topic(each.name)]

    return _asked(ctx, incomplete, names)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The consumer groups whose names begin so."""
    return _asked(ctx, incomplete, lambda admin: admin.groups())


def _asked(
    ctx: Any, incomplete: str, names: Callable[[AsyncAdmin], Awaitable[list[str]]]
) -> list[str]:
    with contextlib.suppress(TandemlogError, typer.TyperException, OSError):
        endpoint = ctx.params.get(connecting.ENDPOINT) or os.environ.get("TANDEMLOG_ENDPOINT", "")
        endpoint = connecting.choose(ctx.find_root().params, endpoint=endpoint) or endpoint
        all_names = run_admin(endpoint or DEFAULT_ENDPOINT, PATIENCE_S, names)
        return [each for each in all_names if each.startswith(incomplete)]
    return []


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
