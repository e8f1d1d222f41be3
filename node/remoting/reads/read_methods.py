"""What RocketMQ's clients read by, put together: pulls, offsets and queries over one node."""

from collections.abc import Callable
from dataclasses import dataclass

from tandemlog_server.storage.message_store import MessageStore

from ...pulls.dispatch_wait import DispatchWait
from ...pulls.known_queues import KnownQueues
from ...pulls.queue_reads import QueueReads
from ...pulls.read_turns import ReadTurns
from ...roles.role import CurrentRole
from ...services.group_service import GroupService
from .group_commits import GroupCommits
from .offset_methods import OffsetMethods
from .pull_methods import NoSlaves, PullMethods, Readers, Subscribed
from .query_methods import QueryMethods


@dataclass(frozen=True, slots=True)
class ReadMethods:
    """Three classes of methods. `pulls` has to hear of a stop and of a change of role."""

    pulls: PullMethods
    offsets: OffsetMethods
    queries: QueryMethods


def read_methods(
    store: MessageStore,
    reads: QueueReads,
    members: GroupService,
    known: KnownQueues,
    turns: ReadTurns,
    current: CurrentRole,
    *,
    subscribed: Subscribed,
    readers: Readers | None = None,
    require_pulled: Callable[[str, str], None] | None = None,
) -> ReadMethods:
    """`subscribed`, `readers` and `require_pulled`: see pull_methods.py."""
    dispatch = DispatchWait(store)
    commits = GroupCommits(members, known, turns)
    return ReadMethods(
        PullMethods(
            reads,
            dispatch,
            commits,
            subscribed=subscribed,
            readers=readers,
            require_pulled=require_pulled,
        ),
        OffsetMethods(
            store,
            members,
            commits,
            known,
            turns,
            dispatch,
            current,
            recent_bytes=reads.limits.far_behind_bytes,
            cold=reads.cold,
        ),
        QueryMethods(store, known, turns, dispatch, readers or NoSlaves()),
    )
