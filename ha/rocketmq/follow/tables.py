"""What a broker has beside its log: topics, groups, offsets; fetched by remoting, kept as our own.

    21 topics   201 groups   402 request modes   45 delay offsets      now and then
    43 consumer offsets                                                every round

Topics are the broker's alone. Groups and offsets are shared: a row that the broker has replaces
ours, and a group of our own readers, which the broker does not know, keeps its rows. What a
broker had in the last round and no longer has is dropped. Which groups are the broker's is kept in
`tandemlog/broker-groups.json`, so that it is known after a restart without the broker.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.disk.checked_json import decode_checked, encode_checked
from storage.disk.files import FileSystem
from storage.disk.small_files import read_small, write_small
from storage.disk_refusal import refusing
from storage.metadata.json_file import Json, parse, table
from storage.store_paths import StorePaths
from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json

from ...store_port import StorePort
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


@dataclass(slots=True)
class BrokerTables:
    """The bodies of one round, by request code."""

    bodies: dict[int, bytes] = field(default_factory=dict)


async def fetch_tables(client: RemotingClient, *, all_of_them: bool) -> BrokerTables:
    """Raises BrokerError."""
    found = BrokerTables()
    for code in (*(_RARE if all_of_them else ()), GET_ALL_CONSUMER_OFFSET):
        try:
            found.bodies[code] = (await client.call(code)).body
        except BrokerRefusedError as error:
            if code not in _OPTIONAL:
                raise
            if error.code != NOT_SUPPORTED:
                logger.debug("%s", error)
    return found


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
        self._configured: frozenset[str] = frozenset()
        self._consuming: frozenset[tuple[str, str]] = frozenset()

    def load(self) -> None:
        """What was known of the broker's groups when the node stopped; a file that is damaged is as
        good as none: the broker tells them again."""
        data = read_small(self._files, self._groups_path)
        if data is None:
            return
        try:
            self.groups = frozenset(map(str, decode_checked(data)["groups"]))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read: %s", self._groups_path, error)

    def start_over(self) -> None:
        """The store was changed otherwise: the next round is taken whatever it was before."""
        self._taken.clear()

    def take(self, tables: BrokerTables, now_ms: int) -> None:
        """Durable on return, but for consumer offsets, which are saved as always. Raises
        BrokerError for what cannot be read, and what the store raises."""
        faults = []
        for code, body in tables.bodies.items():
            if self._taken.get(code) == body:
                continue
            try:
                document = parse(body) if body else {}
                self._take(code, document, table(document, _TABLES[code]), now_ms)
            except FormatError as error:
                faults.append(f"the broker's answer to request {code} cannot be read: {error}")
                continue
            self._taken[code] = body
        if faults:  # one that cannot be read does not keep the others away
            raise BrokerError("; ".join(faults))

    def _take(self, code: int, document: Json, rows: Json, now_ms: int) -> None:
        store = self._store
        if code == GET_ALL_TOPIC_CONFIG:
            kept = {
                name: document[name] for name in ("dataVersion", _TABLES[code]) if name in document
            }
            store.topics.replace_from_json(store_json.dumps(kept).encode())
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
        found = self._configured | {group for _, group in self._consuming}
        if found == self.groups:
            return
        with refusing(f"{self._groups_path} cannot be written"):
            write_small(self._files, self._groups_path, encode_checked({"groups": sorted(found)}))
        self.groups = found

    def _keep_file(self, name: str, document: Mapping[str, object]) -> None:
        path = self._config / name
        data = store_json.dumps(document).encode()
        if document and read_small(self._files, path) != data:
            with refusing(f"{path} cannot be written"):
                write_small(self._files, path, data)
