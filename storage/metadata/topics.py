"""The topics and consumer groups of a store: `config/topics.json`, `config/subscriptionGroup.json`.

Both are RocketMQ's tables, member for member; attributes that this store has no use for stay as
they are, so that a RocketMQ broker can take the store back. A topic says how many queues it has
and what may be done with it:

    perm    4 read   2 write   1 inherit   8 priority

Tables are replaced, never changed in place: a reader takes one and needs no lock. A master
changes them and each change raises `version`; a slave takes the master's whole table.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandemlog.format.columns.light_queues import LIGHT_PREFIX
from tandemlog.format.constants import (
    PERM_READ,
    PERM_WRITE,
    group_fault,
    is_system_topic,
    topic_fault,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.lease.policy import GroupPolicy, decode_policy, encode_policy

from ..disk.file_system import FileSystem
from ..errors import StoreError
from ..listeners import Listeners
from .json_file import Json, JsonTable, integer, table

MAX_QUEUES = 1 << 16

MAX_ATTRIBUTES = 64
MAX_ATTRIBUTE_KEY_BYTES = 255
MAX_ATTRIBUTE_BYTES = 16 << 10
"""Keys and values of one topic."""

_TOPICS = "topicConfigTable"
_GROUPS = "subscriptionGroupTable"


class MetadataError(StoreError):
    """A topic or group that cannot be created, changed or found.

    `code` is a name of tandemlog.v1 ErrorCode, `field` the offending part.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. `members` are those of RocketMQ's bean that have no field of their own here."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    perm: int = PERM_READ | PERM_WRITE
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, object] = field(
        default_factory=lambda: {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    )

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def in_batch_queues(self) -> bool:
        """Whether RocketMQ keeps its messages in batch queues (BCQ), which this store has not."""
        return self.attributes.get("queue.type") == "BatchCQ"

    def encode(self) -> Json:
        """RocketMQ's bean: its members in alphabetical order."""
        bean: Json = {
            **self.members,
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicName": self.name,
            "writeQueueNums": self.write_queues,
        }
        return dict(sorted(bean.items()))


_TOPIC_FIELDS = ("attributes", "order", "perm", "readQueueNums", "topicName", "writeQueueNums")


def decode_topic(name: str, bean: Mapping[str, object]) -> TopicConfig:
    """The topic in `bean`; what is missing gets RocketMQ's default."""
    return TopicConfig(
        name=name,
        read_queues=integer(bean.get("readQueueNums"), 16),
        write_queues=integer(bean.get("writeQueueNums"), 16),
        perm=integer(bean.get("perm"), PERM_READ | PERM_WRITE),
        order=bean.get("order") is True,
        attributes={key: str(value) for key, value in table(bean, "attributes").items()},
        members={key: value for key, value in bean.items() if key not in _TOPIC_FIELDS},
    )


def decode_topics(document: Json) -> dict[str, TopicConfig]:
    """The rows of a whole table. Raises FormatError."""
    topics = table(document, _TOPICS)
    for name, bean in topics.items():
        if not isinstance(bean, dict):
            raise FormatError(f"{_TOPICS}: {name!r} is no object")
    return {name: decode_topic(name, table(topics, name)) for name in topics}


def check_topic(topic: TopicConfig, existing: TopicConfig | None = None) -> None:
    """Raises MetadataError for a name or numbers that no topic can be created with. What the
    `existing` topic has already may stay, since a broker may have made it so."""
    fault = topic_fault(topic.name) if existing is None else None
    if fault is not None:
        raise MetadataError("INVALID_TOPIC_NAME", "name", f"topic {topic.name!r}: {fault}")
    for name in ("read_queues", "write_queues"):
        value = getattr(topic, name)
        unchanged = existing is not None and value == getattr(existing, name)
        if not unchanged and not 1 <= value <= MAX_QUEUES:
            raise MetadataError(
                "INVALID_ARGUMENT", name, f"{name} must be 1 .. {MAX_QUEUES}: {value}"
            )
    if not 0 <= topic.perm <= 15:
        raise MetadataError("INVALID_ARGUMENT", "perm", f"perm must be 0 .. 15: {topic.perm}")
    if existing is None or topic.attributes != existing.attributes:
        _check_attributes(topic.attributes)


def _check_attributes(attributes: Mapping[str, str]) -> None:
    """The table travels to every slave and is written at every change."""
    keys = max((len(key.encode()) for key in attributes), default=0)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
    for what, actual, most in (
        ("attributes", len(attributes), MAX_ATTRIBUTES),
        ("bytes of an attribute's key", keys, MAX_ATTRIBUTE_KEY_BYTES),
        ("bytes of attributes", size, MAX_ATTRIBUTE_BYTES),
    ):
        if actual > most:
            raise MetadataError(
                "INVALID_ARGUMENT", "attributes", f"{what}: {actual}, the most is {most}"
            )


class TopicTable(JsonTable[dict[str, TopicConfig]]):
    """The store's topics. `table` is replaced by every change; one lock guards the changing."""

    def __init__(
        self, path: Path, files: FileSystem, *, max_topics: int = 100_000, max_queues: int = 1 << 22
    ) -> None:
        super().__init__(path, files)
        self._max_topics = max_topics
        self._max_queues = max_queues
        self.table: Mapping[str, TopicConfig] = {}
        self._batch: tuple[Mapping[str, TopicConfig], frozenset[str]] = self.table, frozenset()
        self._listeners: Listeners[[]] = Listeners()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` after every change, in the thread that made it. Returns the function
        that removes it."""
        return self._listeners.add(listener)

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def names(self) -> list[str]:
        return sorted(self.table)

    @property
    def in_batch_queues(self) -> frozenset[str]:
        """The topics that RocketMQ keeps in batch queues; no other queue may have a file."""
        table, batch = self._batch
        if table is not self.table:
            table = self.table
            batch = frozenset(name for name, each in table.items() if each.in_batch_queues)
            self._batch = table, batch
        return batch

    def is_deleted(self, name: str) -> bool:
        """Whether a topic with records in the log was deleted: the table is whole, and has other
        topics, but not this one."""
        whole = bool(self.table) and not self.note
        listed = name in self.table or is_system_topic(name) or name.startswith(LIGHT_PREFIX)
        return whole and not listed

    def readable_queue(self, name: str, queue_id: int) -> int:
        """Where a message for this queue can be read that comes later: there, or in another queue
        if an update has taken that one away."""
        topic = self.table.get(name)
        if topic is None or queue_id < topic.read_queues or topic.read_queues <= 0:
            return queue_id
        return queue_id % topic.read_queues

    def create(self, topic: TopicConfig, now_ms: int, *, update: bool = False) -> TopicConfig:
        """Add a topic, or with `update` change one; durable on return.

        Raises MetadataError: a bad name or number, or a topic that is there already.
        """
        with self._lock:
            existing = self.table.get(topic.name)
            check_topic(topic, existing)
            if existing is not None and not update:
                raise MetadataError(
                    "TOPIC_EXISTS",
                    "name",
                    f"topic {topic.name!r} exists; to change it, pass update=True, or "
                    f"use `tandemlog topic create {topic.name} --update`",
                )
            if existing is not None:
                topic = replace(topic, members=existing.members)
            self._check_room(topic, existing)
            self._change({**self.table, topic.name: topic}, now_ms)
        self._changed()
        return topic

    def delete(self, name: str, now_ms: int) -> TopicConfig:
        """Remove the topic: puts are refused from now on, and its messages stay readable until
        retention drops them. Raises MetadataError if there is no such topic."""
        with self._lock:
            topic = self.table.get(name)
            if topic is None:
                raise MetadataError("UNKNOWN_TOPIC", "name", f"there is no topic {name!r}")
            self._change({key: each for key, each in self.table.items() if key != name}, now_ms)
        self._changed()
        return topic

    def restore(self, topics: Iterable[TopicConfig], now_ms: int) -> None:
        """Add topics that the table has lost; durable on return."""
        with self._lock:
            self._change({**{each.name: each for each in topics}, **self.table}, now_ms)
        self._changed()

    def _check_room(self, topic: TopicConfig, existing: TopicConfig | None) -> None:
        """Caller holds the lock. What is there already may stay, whatever the limits are now."""
        if existing is None and len(self.table) >= self._max_topics:
            raise MetadataError(
                "INVALID_ARGUMENT",
                "name",
                f"there are {len(self.table)} topics, max_topics is {self._max_topics}: delete "
                "some or raise it",
            )
        more = _queues(topic) - (0 if existing is None else _queues(existing))
        if more <= 0:
            return
        count = sum(_queues(each) for each in self.table.values())
        if count + more > self._max_queues:
            raise MetadataError(
                "INVALID_ARGUMENT",
                "write_queues",
                f"the topics have {count} queues and would have {count + more}, max_queues is "
                f"{self._max_queues}: delete some topics or raise it",
            )

    def _change(self, changed: Mapping[str, TopicConfig], now_ms: int) -> None:
        # Caller holds the lock. Persist, then publish: a topic that a put has used must be there
        # after a restart.
        document = self._file.with_next_version(now_ms)
        document[_TOPICS] = {name: each.encode() for name, each in changed.items()}
        self._file.replace(document)
        self.table = changed

    def _decode(self, document: Json) -> dict[str, TopicConfig]:
        return decode_topics(document)

    def _publish(self, rows: dict[str, TopicConfig]) -> None:
        self.table = rows

    def _changed(self) -> None:
        self._listeners.tell()


def _queues(topic: TopicConfig) -> int:
    return max(topic.read_queues, topic.write_queues)


def new_group(name: str) -> Json:
    """The bean that RocketMQ writes for a group with its defaults."""
    return {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


class GroupTable(JsonTable[Json]):
    """The consumer groups, each the bean that RocketMQ has in the file."""

    def __init__(self, path: Path, files: FileSystem, *, max_groups: int = 10_000) -> None:
        super().__init__(path, files)
        self._max_groups = max_groups
        self.table: Mapping[str, object] = {}
        self._deleting: Listeners[[str]] = Listeners()

    def on_delete(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """`listener` hears of each group that is taken out of the table, before another one of its
        name can come. It is called with the table's lock. Returns what ends it."""
        return self._deleting.add(listener)

    def names(self) -> list[str]:
        return sorted(self.table)

    def ensure(self, name: str, now_ms: int, *, has_offsets: bool = False) -> bool:
        """Add the group with RocketMQ's defaults unless it is there; True if it was added.

        Raises MetadataError for a name that no new group can have; one that `has_offsets` is not
        new.
        """
        if name in self.table:
            return False
        fault = group_fault(name, new=not has_offsets)
        if fault is not None:
            raise MetadataError("INVALID_ARGUMENT", "group", f"group {name!r}: {fault}")
        with self._lock:
            if name in self.table:
                return False
            if len(self.table) >= self._max_groups:
                raise MetadataError(
                    "INVALID_ARGUMENT",
                    "group",
                    f"there are {len(self.table)} groups, max_groups is {self._max_groups}: raise "
                    "it, or use a group that is there",
                )
            self._change({**self.table, name: new_group(name)}, now_ms)
        return True

    def policy(self, name: str) -> GroupPolicy:
        """How the group works on its queues; RocketMQ's defaults for one that is not there."""
        row = self.table.get(name)
        return decode_policy(row if isinstance(row, Mapping) else {})

    def set_policy(self, name: str, policy: GroupPolicy, now_ms: int) -> None:
        """Durable on return. Raises MetadataError for a policy that no group can have, or a group
        that is not there."""
        with self._lock:
            row = self.table.get(name)
            if not isinstance(row, Mapping):
                raise MetadataError("UNKNOWN_GROUP", "group", f"there is no group {name!r}")
            try:
                changed = encode_policy(policy, row)
            except FormatError as error:
                raise MetadataError("INVALID_ARGUMENT", "policy", str(error)) from error
            if changed != row:
                self._change({**self.table, name: changed}, now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Whether it was there; durable on return."""
        with self._lock:
            if name not in self.table:
                return False
            self._change({key: each for key, each in self.table.items() if key != name}, now_ms)
        return True

    def take_rows(self, rows: Mapping[str, object], dropped: Collection[str], now_ms: int) -> None:
        """Put these rows in place of the own ones of the same groups, and drop the groups
        `dropped`; durable on return."""
        with self._lock:
            others = {name: bean for name, bean in self.table.items() if name not in dropped}
            changed = {**others, **rows}
            if changed != self.table:
                self._change(changed, now_ms)

    def _change(self, changed: Json, now_ms: int) -> None:
        """Caller holds the lock."""
        document = {"forbiddenTable": {}, **self._file.with_next_version(now_ms), _GROUPS: changed}
        self._file.replace(dict(sorted(document.items())))
        self._publish(changed)

    def _decode(self, document: Json) -> Json:
        return table(document, _GROUPS)

    def _publish(self, rows: Json) -> None:
        before, self.table = self.table, rows
        for name in before.keys() - rows.keys():
            self._deleting.tell(name)
