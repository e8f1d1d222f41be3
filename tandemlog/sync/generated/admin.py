"""Generated from AsyncAdmin (tandemlog/admin.py) by `make sync`. Do not edit.

Each call runs in the clients' loop (loop_thread.py); the caller's thread waits for it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ...admin import AsyncAdmin
from ...cluster.connection_options import ConnectionOptions
from ...cluster.delayed_messages import DelayedMessage
from ...cluster.elections import Changed, ClusterChange, Coordination, History
from ...cluster.node_details import NodeConnection, NodeSetting, SettingChange
from ...cluster.scrub_status import ScrubStatus
from ...cluster.takeover import Takeover
from ...cluster.topic_info import ProducerInfo, TopicInfo
from ...cluster.topology import ReadFrom, Topology
from ...cluster.transactions import OpenTransaction
from ...consume.group.group_admin import GroupDescription, OffsetChange
from ...consume.reading.positions import Queue, QueueRange, Start
from ...consume.reading.queue_lag import QueueLag
from ...consume.received.received_message import ReceivedMessage
from ...transport.security import Security
from ..loop_thread import SyncClient


class Admin(SyncClient[AsyncAdmin]):
    """Administers the cluster that `endpoints` belong to."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        read_from: ReadFrom | str = ReadFrom.ANY,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        super().__init__(
            AsyncAdmin(endpoints, read_from=read_from, connection=connection, security=security)
        )

    def close(self) -> None:
        """Closes the connection."""
        super().close()

    def cluster(self) -> Topology:
        """All nodes with their present roles, offsets and lag. Raises NoNodeError if no node
        answers."""
        return self._thread.run(self._client.cluster())

    def coordination(self) -> Coordination:
        """Who leads, who is in sync, who belongs to the cluster: read at the coordinator now, by
        the node that is read from. Raises CoordinatorUnavailableError, and InvalidArgumentError if
        roles are configured."""
        return self._thread.run(self._client.coordination())

    def history(self) -> History:
        """The terms of the cluster's masters; raises as `coordination`."""
        return self._thread.run(self._client.history())

    def change_cluster(
        self,
        change: ClusterChange,
        node_id: str = "",
        *,
        request_id: str = "",
        epoch: int = 0,
        force: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Asks one node, once. A switchover or a failover is only begun: `coordination` shows it
        under `request_id`. `epoch`: only in this one (0: in any). Raises ChangeRefusedError,
        OutcomeUnknownError, and as `coordination`."""
        return self._thread.run(
            self._client.change_cluster(
                change, node_id, request_id=request_id, epoch=epoch, force=force, dry_run=dry_run
            )
        )

    def take_over(self, *, force: bool = False, dry_run: bool = False) -> Takeover:
        """Asks a node that follows a RocketMQ broker to become the master of its log: it does if
        nothing is left to wait for, else it says what it waits for. Ask again, also if the outcome
        of a call is unknown. `force`: whatever the broker does; what is not here is lost. Raises
        ChangeRefusedError if the node follows no broker."""
        return self._thread.run(self._client.take_over(force=force, dry_run=dry_run))

    def create_topic(
        self,
        name: str,
        queues: int | None = None,
        *,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        update: bool = False,
    ) -> TopicInfo:
        """Creates a topic, or changes one with `update`. A value of None means the default of
        TopicInfo; with `update`, the present value. Raises TopicExistsError, with `update`
        UnknownTopicError and QueuesNotEmptyError (fewer queues than hold messages),
        InvalidTopicNameError, and what the master refuses."""
        return self._thread.run(
            self._client.create_topic(
                name, queues, perm=perm, order=order, attributes=attributes, update=update
            )
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; its messages stay in the log until they expire."""
        self._thread.run(self._client.delete_topic(name))

    def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return self._thread.run(self._client.topics())

    def topic(self, name: str) -> TopicInfo:
        """One topic; raises UnknownTopicError."""
        return self._thread.run(self._client.topic(name))

    def groups(self) -> list[str]:
        """All consumer groups with a committed offset or a configuration."""
        return self._thread.run(self._client.groups())

    def delayed(self, topic: str = "", limit: int = 1000) -> list[DelayedMessage]:
        """The next messages that come later to `topic`, or to all topics, as the master has it."""
        return self._thread.run(self._client.delayed(topic, limit))

    def recall(self, topic: str, recall_handle: str) -> None:
        """As Producer.recall."""
        self._thread.run(self._client.recall(topic, recall_handle))

    def transactions(self) -> list[OpenTransaction]:
        """Those that are open, as the master has them, the oldest first."""
        return self._thread.run(self._client.transactions())

    def decide_transaction(
        self, transaction_id: str, *, commit: bool, dry_run: bool = False
    ) -> OpenTransaction | None:
        """End a transaction in place of its producer; returns what it had, None if it had ended so
        before. Raises UnknownTransactionError, TransactionDecidedError."""
        return self._thread.run(
            self._client.decide_transaction(transaction_id, commit=commit, dry_run=dry_run)
        )

    def describe_group(self, group: str) -> GroupDescription:
        """State and members of a consumer group, as its master sees them; raises
        UnknownGroupError if it has neither members nor offsets."""
        return self._thread.run(self._client.describe_group(group))

    def lag(self, group: str, topics: str | Sequence[str] = ()) -> list[QueueLag]:
        """By queue, what waits for the group: of `topics`, or of all topics that it has offsets of
        or that its members follow. A queue without an offset counts from its beginning. Raises
        UnknownGroupError, UnknownTopicError."""
        return self._thread.run(self._client.lag(group, topics))

    def reset_offsets(
        self,
        group: str,
        topics: str | Sequence[str] = (),
        *,
        to: Start | Mapping[Queue, int] | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Moves the group's offsets and returns what changes; with `dry_run` nothing does.

        `topics`: none means those that the group has offsets of. `to`: EARLIEST, LATEST, a time
        (ms or datetime) or an offset for each (topic, queue id); or `shift_by` messages forward,
        or back where negative. Offsets stay within what a queue holds. Raises
        GroupHasMembersError while members are there, UnknownGroupError, UnknownTopicError.
        """
        return self._thread.run(
            self._client.reset_offsets(group, topics, to=to, shift_by=shift_by, dry_run=dry_run)
        )

    def delete_group(self, group: str, *, dry_run: bool = False) -> None:
        """Deletes a group and its offsets; `dry_run` only says whether it would be refused. Raises
        GroupHasMembersError while members are there, UnknownGroupError."""
        self._thread.run(self._client.delete_group(group, dry_run=dry_run))

    def stats(self) -> dict[str, float]:
        """Statistics of the node that is read from, by name."""
        return self._thread.run(self._client.stats())

    def settings(self, node_id: str = "") -> list[NodeSetting]:
        """All settings of a running node (default: of the one that is read from)."""
        return self._thread.run(self._client.settings(node_id))

    def change_setting(
        self, key: str, value: str, node_id: str = "", *, unset: bool = False, dry_run: bool = False
    ) -> SettingChange:
        """Gives one node's setting a value (as TOML, or bare text), in its file and, where the
        setting is live, at once; `unset` takes the key out of the file. Raises
        InvalidArgumentError for a value that does not fit the rest, and for a key that the
        environment gives."""
        return self._thread.run(
            self._client.change_setting(key, value, node_id, unset=unset, dry_run=dry_run)
        )

    def connections(self, node_id: str = "") -> list[NodeConnection]:
        """Who has calls in progress at a node (default: at the one that is read from)."""
        return self._thread.run(self._client.connections(node_id))

    def scrub_status(self, node_id: str = "") -> ScrubStatus:
        """How far the scrub of a node is, and what it could not settle (default: of the node that
        is read from)."""
        return self._thread.run(self._client.scrub_status(node_id))

    def begin_scrub(self, node_id: str = "") -> ScrubStatus:
        """Lets a node begin a round through its log now. Raises InvalidArgumentError where its
        scrub is off."""
        return self._thread.run(self._client.begin_scrub(node_id))

    def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics` (none: of all)."""
        return self._thread.run(self._client.ranges(topics))

    def committed(self, group: str, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """A group's committed offsets by (topic, queue id)."""
        return self._thread.run(self._client.committed(group, topics))

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Sets where a group continues reading; its consumers must not run meanwhile."""
        self._thread.run(self._client.commit(group, offsets))

    def search_offset(
        self, topic: str, time: Start, *, queue_id: int | None = None, upper: bool = False
    ) -> dict[Queue, int]:
        """By queue, the first message stored at or after `time` (ms or datetime); `upper`: the
        last one stored at or before it."""
        return self._thread.run(
            self._client.search_offset(topic, time, queue_id=queue_id, upper=upper)
        )

    def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 0,
        begin: int | datetime = 0,
        end: int | datetime = 0,
        tags: bool = False,
        everything: bool = False,
    ) -> list[ReceivedMessage]:
        """Messages with this key or unique id, stored between two times (ms or datetime; 0: no
        bound). `max_messages` 0 means 64, more with `everything`; `tags`: `key` is a tag."""
        return self._thread.run(
            self._client.query_by_key(
                topic,
                key,
                max_messages=max_messages,
                begin=begin,
                end=end,
                tags=tags,
                everything=everything,
            )
        )

    def query_by_id(self, msg_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """The message with this offset id; with `topic`, also the one with this unique id
        (UNIQ_KEY), which has the same form. None if no message has it."""
        return self._thread.run(self._client.query_by_id(msg_id, topic))

    def messages_at(self, physical_offsets: Sequence[int]) -> list[ReceivedMessage]:
        """The messages at positions in the commit log (bytes), one for each; raises
        OffsetOutOfRangeError if the log holds none there."""
        return self._thread.run(self._client.messages_at(physical_offsets))

    def producer(self, producer_id: str) -> ProducerInfo | None:
        """What the master knows of a producer; None if nothing."""
        return self._thread.run(self._client.producer(producer_id))
