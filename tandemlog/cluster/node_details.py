"""What one node tells of itself: the settings that it runs with, and who is connected to it."""

from dataclasses import dataclass

from ..v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """A key of a node's configuration; values are as TOML writes them. `source`: "default", the
    path of the node's file, or a variable of its environment. `live`: a change counts at once.
    `next_value`: what a restart would make of it, empty if it stays."""

    key: str
    value: str
    default: str
    source: str
    live: bool
    next_value: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting after a change, and its value before; `needs_restart`: the node still runs with
    the value before."""

    node_id: str
    setting: NodeSetting
    before: str
    needs_restart: bool


@dataclass(frozen=True, slots=True)
class NodeConnection:
    """A caller that has calls in progress. `peer`: its address and port; `identity`: empty where
    callers need not say who they are; `seconds`: since the oldest of these calls began."""

    node_id: str
    peer: str
    identity: str
    seconds: float
    calls: int
    streams: int
    long_polls: int
    methods: tuple[str, ...]


def setting_of(row: admin_pb2.Setting) -> NodeSetting:
    return NodeSetting(row.key, row.value, row.default_value, row.source, row.live, row.next_value)


def change_of(answer: admin_pb2.ChangeSettingResponse) -> SettingChange:
    return SettingChange(
        answer.answered_by, setting_of(answer.setting), answer.before, answer.needs_restart
    )


def connections_of(answer: admin_pb2.ListConnectionsResponse) -> list[NodeConnection]:
    return [
        NodeConnection(
            answer.answered_by,
            row.peer,
            row.identity,
            row.seconds,
            row.calls,
            row.streams,
            row.long_polls,
            tuple(row.methods),
        )
        for row in answer.connections
    ]
