"""What a master of tests is and holds: node m of cluster c, in epoch 3."""

from typing import Any

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.protocol.handshake import MasterView


def master_view(*epochs: EpochEntry, end: int = 1000, **changes: Any) -> MasterView:
    """Its log 0..`end` has these `epochs`; `changes` are fields of MasterView."""
    values = {
        "cluster_id": "c",
        "node_id": "m",
        "incarnation": "mi",
        "endpoint": "m:1",
        "epoch": 3,
        "epochs": EpochTable(epochs),
        "min_offset": 0,
        "end_offset": end,
        "confirm": 0,
        "file_size": 4096,
        "proof_bytes": 64,
        **changes,
    }
    return MasterView(**values)
