"""Slaves of another protocol that count: what the group needs to know of them.

Such a slave has no handshake and no incarnation, takes no tables with its stream, and acknowledges
seldom while nothing comes. Its session here is only the group's record of it: who serves it tells
how far it was sent the log, and passes on its acknowledgements.

    attach_foreign ─▶ MasterSession (streaming) ─▶ receive(Ack) ... ─▶ closed
                           ▲ sent = ...

A slave that has acknowledged all that it was sent owes nothing, so its silence says nothing: it
counts as heard while its connection lives. One that owes an acknowledgement is under the ordinary
lag rule.
"""

from ..protocol.frames import Hello
from ..protocol.versions import Build
from .session import MasterSession
from .sync_state_set import Progress

FOREIGN_SILENCE_S = 20.0
"""How long an idle slave may be silent. A RocketMQ slave speaks every 5 s."""


def foreign_hello(
    cluster_id: str, node_id: str, incarnation: str, offset: int, build: str
) -> Hello:
    """What the slave would have said of itself, had it a hello; it has no endpoint."""
    return Hello(cluster_id, node_id, incarnation, max_offset=offset, build=Build(build))


def owes_nothing(session: MasterSession, now: float) -> bool:
    """Whether the silence of this slave of another protocol says nothing."""
    return session.acked >= session.sent and now - session.heard_at <= FOREIGN_SILENCE_S


def count_as_heard(session: MasterSession, each: Progress, end: int, now: float) -> None:
    """The idle rule: as if its last acknowledgement had come again."""
    if each.foreign and owes_nothing(session, now):
        each.heard_at = now
        each.held(session.acked, end, now)
