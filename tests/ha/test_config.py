"""Settings that cannot work are refused with the reason."""

import pytest

from tandemlog_server.ha.config import HaConfig, Replication, Role


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cluster_id": ""}, "cluster_id"),
        ({"node_id": ""}, "node_id"),
        ({"role": Role.SLAVE}, "master_endpoint"),
        ({"min_in_sync": 0}, "min_in_sync"),
        ({"dead_after_ms": 599}, "twice heartbeat_ms"),
        ({"chunk_bytes": 0}, "chunk_bytes"),
        ({"chunk_bytes": 33 << 20}, "chunk_bytes"),
        ({"window_bytes": 1000}, "must be at least chunk_bytes"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, object], words: str) -> None:
    values: dict[str, object] = {"cluster_id": "c", "node_id": "n", **settings}
    with pytest.raises(ValueError, match=words):
        HaConfig(**values)  # type: ignore[arg-type]


def test_only_sync_replication_requires_members() -> None:
    assert HaConfig("c", "n", min_in_sync=2).required == 1
    assert HaConfig("c", "n", min_in_sync=2, mode=Replication.SYNC).required == 2
