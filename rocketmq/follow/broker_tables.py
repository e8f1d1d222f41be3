"""What a broker has beside its log: topics, groups, offsets; fetched by remoting, kept as our own.

    21 topics   201 groups   402 request modes   45 delay offsets      now and then
    43 consumer offsets                                                every round

Topics are the broker's alone. Groups and offsets are shared: a row that the broker has replaces
ours, and a group of our own readers, which the broker does not know, keeps its rows. What a
broker had in the last round and no longer has is dropped. Which groups are the broker's is kept in
`tandemlog/broker-groups.json`, so that it is known after a restart without the broker.

A row that is no valid topic, group or offset is left out, and a line of the log names it. A table
that cannot be read at all is not parsed again until it changes.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json
from tandemlog.format.files.names import names_a_folder
from tandemlog.format.words import counted, quoted, visible
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.disk.checked_json import decode_checked, encode_checked
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.small_files import read_small, write_small
from tandemlog_server.storage.disk_errors import refusing
from tandemlog_server.storage.metadata.json_file import Json, integer, parse, table
from tandemlog_server.storage.metadata.topics import MAX_QUEUES
from tandemlog_server.storage.queues.queue_table import MAX_QUEUE_ID
from tandemlog_server.storage.store_paths import StorePaths

from ..wire.client import RemotingClient
from ..wire.errors import BrokerError, BrokerRefusedError
from ..wire.remoting import NOT_SUPPORTED
from ..wire.requests import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_MESSAGE_REQUEST_MODE,
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_ALL_TOPIC_CONFIG,
)
from .broker_facts import MAX_NAME

logger = logging.getLogger(__name__)

DELAY_OFFSETS = "delayOffset.json"
REQUEST_MODES = "messageRequestMode.json"
BROKER_GROUPS = "broker-groups.json"
"""The first two are files in `config/` that tandemlog keeps for RocketMQ, and does not read."""
_TABLES = {
    GET_ALL_TOPIC_CONFIG: "topicConfigTable",
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG: "subscriptionGroupTable",
    GET_ALL_CONSUMER_OFFSET: "offsetTable",
    GET_ALL_DELAY_OFFSET: "offsetTable",
    GET_ALL_MESSAGE_REQUEST_MODE: "messageRequestModeMap",
}
_RARE = (
    GET_ALL_TOPIC_CONFIG,
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_MESSAGE_REQUEST_MODE,
)
_OPTIONAL = (GET_ALL_DELAY_OFFSET, GET_ALL_MESSAGE_REQUEST_MODE)
"""Brokers before 5.0 do not know request modes, and one without a schedule has no delay offsets."""
MAX_QUEUE_OFFSET = (1 << 62) - 1
_TOPIC_NUMBERS = {
    "readQueueNums": MAX_QUEUES,
    "writeQueueNums": MAX_QUEUES,
    "perm": (1 << 31) - 1,
}
FEW_FAULTS = 3
"""Faults of a table that a line of the log names."""


@dataclass(slots=True)
class BrokerTables:
    """The bodies of one round, by request code."""

    bodies: dict[int, bytes] = field(default_factory=dict)


async def fetch_tables(client: RemotingClient, *, all_of_them: bool) -> BrokerTables:
    """Raises BrokerError."""
    tables = BrokerTables()
    for code in (*(_RARE if all_of_them else ()), GET_ALL_CONSUMER_OFFSET):
        try:
            tables.bodies[code] = (await client.call(code)).body
        except BrokerRefusedError as error:
            if code not in _OPTIONAL:
                raise
            if error.code != NOT_SUPPORTED:
                logger.debug("%s", error)
    return tables


class TableKeeper:
    """Puts the broker's tables into a store. One thread calls; `groups` are those of the broker,
    replaced and never changed, so any thread may read it."""

    def __init__(self, store: StorePort, files: FileSystem) -> None:
        self.groups: frozenset[str] = frozenset()
        self._store = store
        self._files = files
        paths = StorePaths(store.config.directory)
        self._config = paths.config
        self._groups_path = paths.own / BROKER_GROUPS
        self._taken: dict[int, bytes] = {}
        self._unreadable: dict[int, tuple[bytes, str]] = {}
        self._configured: frozenset[str] = frozenset()
        self._consuming: frozenset[tuple[str, str]] = frozenset()

    def load(self) -> None:
        """Read what was known of the broker's groups when the node stopped. A damaged file is
        ignored: the broker sends them again."""
        data = read_small(self._files, self._groups_path)
        if data is None:
            return
        try:
            self.groups = frozenset(map(str, decode_checked(data)["groups"]))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read: %s", self._groups_path, error)

    def start_over(self) -> None:
        """The store was changed otherwise: the next round is stored even if it equals the last."""
        self._taken.clear()

    def replace(self, tables: BrokerTables, now_ms: int) -> None:
        """Durable on return, but for consumer offsets, which are saved as always. Raises
        BrokerError for what cannot be read, and what the store raises."""
        faults = []
        for code, body in tables.bodies.items():
            if self._taken.get(code) == body:
                continue
            unreadable, fault = self._unreadable.get(code, (b"", ""))
            if fault and unreadable == body:
                faults.append(fault)
                continue
            try:
                document = parse(body) if body else {}
                self._replace(code, document, table(document, _TABLES[code]), now_ms)
            except FormatError as error:
                fault = f"the broker's answer to request {code} cannot be read: {error}"
                faults.append(fault)
                self._unreadable[code] = body, fault
                continue
            self._taken[code] = body
            self._unreadable.pop(code, None)
        if faults:  # after the others: a table that cannot be read must not keep them away
            raise BrokerError("; ".join(faults))

    def _replace(self, code: int, document: Json, rows: Json, now_ms: int) -> None:
        store = self._store
        if code in _ROW_FAULTS:
            rows = _sound(code, rows)
        if code == GET_ALL_TOPIC_CONFIG:
            topics = {_TABLES[code]: rows}
            if "dataVersion" in document:
                topics = {"dataVersion": table(document, "dataVersion"), **topics}
            store.topics.replace_from_json(store_json.dumps(topics).encode())
        elif code == GET_ALL_SUBSCRIPTION_GROUP_CONFIG:
            store.groups.take_rows(rows, self._configured.difference(rows), now_ms)
            self._configured = frozenset(rows)
            self._keep_groups()
        elif code == GET_ALL_CONSUMER_OFFSET:
            pairs = store.consumer_offsets.take_rows(rows, self._consuming)
            self._consuming = pairs
            self._keep_groups()
        else:
            self._keep_file(
                DELAY_OFFSETS if code == GET_ALL_DELAY_OFFSET else REQUEST_MODES, document
            )

    def _keep_groups(self) -> None:
        groups = self._configured | {group for _, group in self._consuming}
        if groups == self.groups:
            return
        with refusing(f"{self._groups_path} cannot be written"):
            write_small(self._files, self._groups_path, encode_checked({"groups": sorted(groups)}))
        self.groups = groups

    def _keep_file(self, name: str, document: Mapping[str, object]) -> None:
        path = self._config / name
        data = store_json.dumps(document).encode()
        if document and read_small(self._files, path) != data:
            with refusing(f"{path} cannot be written"):
                write_small(self._files, path, data)


def _sound(code: int, rows: Json) -> Json:
    """The rows without those that have a fault."""
    fault_of = _ROW_FAULTS[code]
    faults = {name: fault for name, row in rows.items() if (fault := fault_of(name, row))}
    if faults:
        few = "; ".join(f"{quoted(name)}: {faults[name]}" for name in [*faults][:FEW_FAULTS])
        logger.warning(
            "%s of the broker's answer to request %d left out, correct them at the broker: %s%s",
            counted(len(faults), "row"), code, few, "; …" if len(faults) > FEW_FAULTS else "",
        )  # fmt: skip
    return {name: row for name, row in rows.items() if name not in faults}


def _topic_row_fault(name: str, row: object) -> str:
    """Why no topic can be so; empty if one can."""
    if fault := _name_fault(name):
        return fault
    if not names_a_folder(name):
        return "its queues cannot have a folder of that name"
    if not isinstance(row, dict):
        return ""  # the table as a whole cannot be read
    for key, most in _TOPIC_NUMBERS.items():
        if key in row and not _within(row[key], most):
            return f"{key} must be 0 .. {most}: {quoted(str(row[key]))}"
    return ""


def _group_row_fault(name: str, row: object) -> str:
    fault = _name_fault(name)
    return fault or ("" if isinstance(row, dict) else "it is not an object")


def _offset_row_fault(name: str, row: object) -> str:
    topic, _, group = name.rpartition("@")
    if fault := _name_fault(topic) or _name_fault(group):
        return fault
    if not isinstance(row, dict):
        return "it is not an object"
    for queue_id, offset in row.items():
        if not _within(queue_id, MAX_QUEUE_ID):
            return f"a queue's id must be 0 .. {MAX_QUEUE_ID}: {quoted(str(queue_id))}"
        if not _within(offset, MAX_QUEUE_OFFSET, least=-1):
            return f"an offset must be -1 .. {MAX_QUEUE_OFFSET}: {quoted(str(offset))}"
    return ""


def _name_fault(name: str) -> str:
    """A broker has more names than may be created here: that of its own host, those of its LMQ."""
    if len(name) > MAX_NAME:
        return f"a name has {len(name)} characters, the most is {MAX_NAME}"
    return "" if visible(name) == name and name.isprintable() else "a name has control characters"


def _within(value: object, most: int, *, least: int = 0) -> bool:
    return least <= integer(value, least - 1) <= most


_ROW_FAULTS: Mapping[int, Callable[[str, object], str]] = {
    GET_ALL_TOPIC_CONFIG: _topic_row_fault,
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG: _group_row_fault,
    GET_ALL_CONSUMER_OFFSET: _offset_row_fault,
}
"""Why a row of the table is left out; empty if it is sound."""
