"""The settings of the nodes of a test: a node's own, with small files and a fast start.

Given settings stand above these, and have the names of a node's file (docs/configuration.md). The
environment is not read: variables meant for a real node must not change a test.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from tandemlog_server.node.settings.node_config import NodeConfig

STORE: Final = Path("/store")
MAX_NODES: Final = 5
_MIB: Final = 1 << 20

_SMALL: Final[dict[str, Any]] = {
    # a record of the largest size fits, and two files are little memory
    "commit_log_file_size": 5 * _MIB,
    "queue_file_size": 20 * 2_000,
    "index_slots": 2_000,
    "index_entries": 10_000,
    # a full disk is noticed at once, and its messages are not deleted to make room
    "retention": {"check_interval_ms": 100, "clean_forcibly": False},
}
_REPLICATION: Final[dict[str, Any]] = {
    "mode": "sync",
    "reconnect_min_ms": 20,
    "reconnect_max_ms": 200,
    "refused_retry_ms": 100,
    # a slave is in sync soon; it is heard often enough to count as keeping up that long
    "heartbeat_ms": 50,
    "rejoin_ms": 150,
    "members_interval_ms": 100,
    "metadata_interval_ms": 100,
}


class NodeSettings(NodeConfig):
    """A node's settings from arguments alone."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def node_settings(
    names: list[str], name: str, listen: str, coordinator: str, given: Mapping[str, Any]
) -> NodeSettings:
    """Of the node `name` of the cluster of `names`; `coordinator` is empty for one node alone.

    Raises pydantic's ValidationError, which is a ValueError, for a setting that does not exist.
    """
    values: dict[str, Any] = {
        "cluster_id": "testing",
        "node_id": name,
        "listen": listen,
        "http_listen": "",
        "stop_timeout_ms": 1_000,
        "store": {"directory": STORE, **_SMALL},
    }
    if coordinator:
        values["coordinator"] = {"endpoints": [coordinator], "members": names}
        values["replication"] = _REPLICATION
    return NodeSettings(**_merged(values, given))


def _merged(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` above `values`, section by section."""
    merged = dict(values)
    for key, value in given.items():
        held = merged.get(key)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(held, value)
        else:
            merged[key] = value
    return merged
