"""The reader of queues of a whole node: its store, and how much it may do."""

import asyncio
from collections.abc import Callable

from tandemlog_server.storage.message_store import MessageStore

from ..process.memory_at_rest import machine_memory_bytes
from ..settings.node_config import NodeConfig
from .dispatch_wait import DispatchWait
from .group_activity import GroupActivity
from .known_queues import KnownQueues
from .long_polling import LongPolling
from .queue_reads import FAR_BEHIND_MEMORY_SHARE, QueueReads
from .read_turns import ReadTurns
from .reading import Cold, PullLimits


def node_reads(
    store: MessageStore,
    turns: ReadTurns,
    known: KnownQueues,
    groups: GroupActivity,
    config: NodeConfig,
    *,
    on_slave: Callable[[], bool],
    cold: Cold | None = None,
) -> QueueReads:
    """In the event loop, which it wakes from reput's thread."""
    polling = LongPolling(asyncio.get_running_loop(), lambda: store.queue_table.count)
    store.on_dispatch(lambda queues: polling.on_dispatch(queues.tolist()))
    return QueueReads(
        store.reader,
        polling,
        turns,
        check=known.check_queue,
        dense=store.queue_table.get,
        ends=store.queues.ends_of,
        end=lambda queue: store.queues.max_offset(queue) if queue >= 0 else 0,
        dispatched=DispatchWait(store).confirmed,
        on_slave=on_slave,
        limits=PullLimits(
            config.pull.max_bytes,
            config.pull.max_wait_ms,
            config.limits.long_polls,
            round(machine_memory_bytes() * FAR_BEHIND_MEMORY_SHARE),
        ),
        groups=groups,
        log_term=lambda: store.log_identity.newest,
        cold=cold,
    )
