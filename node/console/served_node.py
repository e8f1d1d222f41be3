"""A node, as its console sees it. All of it is cheap and is called in the loop."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.message_store import MessageStore

from ..archive.node_archive import NodeArchive
from ..cluster_membership import ClusterMembership
from ..http.node_numbers import NodeNumbers
from ..scrub.scrub_service import ScrubService
from ..security.node_security import NodeSecurity
from ..settings.listen_endpoints import Endpoints
from ..settings.node_config import NodeConfig


class ServedNode(Protocol):
    config: NodeConfig
    endpoints: Endpoints
    security: NodeSecurity
    store: MessageStore

    membership: ClusterMembership
    scrub: ScrubService
    archive: NodeArchive

    def members(self) -> Sequence[common_pb2.NodeStatus]: ...

    def statistics(self) -> Mapping[str, float]: ...

    def numbers(self) -> NodeNumbers: ...
