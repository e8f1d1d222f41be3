"""The tables as RocketMQ's remoting sends them: what a slave broker asks its master for.

    topics, subscription groups   our files, which are RocketMQ's, with the members that 5.x adds
    consumer offsets              ... without what RocketMQ does not have
    delay offsets, request modes  the files that RocketMQ left in the store, else empty tables
    timers                        none

A slave replaces its own topics and groups by what it gets, so every document is whole. RocketMQ's
reader takes null for an empty table and then fails, so no table is left out.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json
from tandemlog_server.ha.store_port import StorePort

Json = dict[str, object]

_CHECKPOINT = Struct(">7q")
NO_VERSION: Final[Mapping[str, object]] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_CONFIG = "config"


def topics(store: StorePort) -> bytes:
    """TopicConfigAndMappingSerializeWrapper; 4.x reads the first two members."""
    return _encoded(
        {
            **_members(store.topics.to_json(), "topicConfigTable"),
            "mappingDataVersion": dict(NO_VERSION),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
    )


def groups(store: StorePort) -> bytes:
    """SubscriptionGroupWrapper."""
    return _encoded(_members(store.groups.to_json(), "subscriptionGroupTable", "forbiddenTable"))


def consumer_offsets(store: StorePort) -> bytes:
    """ConsumerOffsetSerializeWrapper."""
    return _encoded(_members(store.consumer_offsets.to_json(), "offsetTable"))


def delay_offsets(store: StorePort) -> bytes:
    """DelayOffsetSerializeWrapper: how far RocketMQ had delivered each level of delay."""
    return _encoded(_members(_file(store, "delayOffset.json"), "offsetTable"))


def request_modes(store: StorePort) -> bytes:
    """MessageRequestModeSerializeWrapper."""
    modes = _members(_file(store, "messageRequestMode.json"), "messageRequestModeMap")
    return _encoded({"messageRequestModeMap": modes["messageRequestModeMap"]})


def timer_checkpoint() -> bytes:
    """TimerCheckpoint of a broker that has no timers: seven i64 of 0."""
    return _CHECKPOINT.pack(*[0] * 7)


def timer_metrics() -> bytes:
    """TimerMetricsSerializeWrapper of such a broker."""
    return _encoded({"dataVersion": dict(NO_VERSION), "timingCount": {}})


def _members(data: bytes, *tables: str) -> Json:
    """The version and these tables of the document in `data`, each empty where it has none."""
    document = store_json.loads(data)
    members = document if isinstance(document, dict) else {}
    version = members.get("dataVersion") or dict(NO_VERSION)
    return {"dataVersion": version, **{table: members.get(table) or {} for table in tables}}


def _file(store: StorePort, name: str) -> bytes:
    """A file that this store keeps for RocketMQ and does not use itself; {} if it is missing or
    cannot be read as a table."""
    path = store.config.directory / _CONFIG / name
    try:
        data = path.read_bytes()
        document = store_json.loads(data)
    except (OSError, FormatError):
        return b"{}"
    return data if isinstance(document, dict) else b"{}"


def _encoded(document: Json) -> bytes:
    return store_json.dumps(document).encode()
