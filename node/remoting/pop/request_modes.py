"""Which groups pop which topics: read from the table of groups, which every node has.

    401 on the master ─▶ the group's row ─▶ replicated ─▶ pops(group, topic) on every node

A topic that a group pops is leased to its members message by message. Who pulls the same queues
beside them would get everything twice, so a pull of such a topic is refused, on every node; and the
group's members count as those of a work queue, not as RocketMQ's that balance by themselves
(pulls/group_kind.py).
"""

from collections.abc import Mapping

from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.clients.pop.assignments import popped_topics
from tandemlog_server.storage.metadata.topics import GroupTable

from ..door.remoting_call import RemotingRefusedError


class RequestModes:
    """See the module. Rows are read again when the table has changed. Belongs to the loop."""

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups
        self._table: object = None
        self._found: dict[str, Mapping[str, int]] = {}

    def popped(self, group: str) -> Mapping[str, int]:
        """The topics that the group pops, with their shares (clients/pop/assignments.py)."""
        table = self._groups.table
        if table is not self._table:
            self._table = table
            self._found.clear()
        found = self._found.get(group)
        if found is None:
            row = table.get(group)
            if row is None:
                return {}
            found = self._found[group] = popped_topics(row)
        return found

    def pops(self, group: str) -> bool:
        """Whether the group pops any topic."""
        return bool(self.popped(group))

    def require_pulled(self, group: str, topic: str) -> None:
        """Raises RemotingRefusedError for a topic that the group pops."""
        if topic in self.popped(group):
            raise RemotingRefusedError(
                ResponseCode.NO_PERMISSION,
                f"group {quoted(group)} pops topic {quoted(topic)}, so its messages are leased to "
                "members one by one: use consumers with setClientRebalance(false), or let the "
                "group pull again with mqadmin setConsumeMode -m PULL",
            )
