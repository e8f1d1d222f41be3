"""A client of the work queues for one request, as the caller.

A resend of many dead letters is many puts, and is not repeated by itself when no answer comes: it
has more time than a question.
"""

from dataclasses import replace

from tandemlog.consume.work.work_admin import AsyncWorkAdmin

from .cluster_clients import Clients

CHANGE_MS = 30_000


def work_admin(clients: Clients, *, changes: bool = False) -> AsyncWorkAdmin:
    """To be used with `async with`."""
    options = clients.options
    if changes:
        options = replace(options, request_timeout_ms=CHANGE_MS)
    return AsyncWorkAdmin(clients.endpoint, connection=options)
