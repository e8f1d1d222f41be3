"""An administrator's client that takes every change of the cluster, and keeps what was asked."""

from typing import Any

from tandemlog.cluster.elections import Changed, ClusterChange
from tandemlog.errors import NodeUnavailableError


class AskedAdmin:
    """`lost`: the answer to a change does not come."""

    def __init__(self) -> None:
        self.asked: list[tuple[ClusterChange, bool]] = []
        self.request_id = ""
        self.lost = False

    async def change_cluster(
        self, change: ClusterChange, node_id: str = "", *, dry_run: bool = False, **more: Any
    ) -> Changed:
        self.asked.append((change, dry_run))
        self.request_id = more["request_id"]
        if self.lost and not dry_run:
            raise NodeUnavailableError("n0:1: no answer")
        return Changed("n0", 17, "n1", not dry_run)
