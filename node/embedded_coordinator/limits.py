"""What the embedded coordinator keeps and answers at most; more is refused by name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. History is what watches and reads of the past can reach:
    above its limits the older half is compacted. `txn_keys` is how many keys the comparisons, reads
    and deletions of one transaction go through; `waiting_bytes` what waits for a slow disk."""

    key_bytes: int = 4 << 10
    value_bytes: int = 512 << 10
    request_bytes: int = 3 << 19
    answer_bytes: int = 32 << 20
    operations: int = 128
    txn_keys: int = 32_768
    waiting_bytes: int = 64 << 20
    keys: int = 16_384
    live_bytes: int = 32 << 20
    history_rows: int = 16_384
    history_bytes: int = 16 << 20
    leases: int = 4_096
    lease_ttl_s: int = 7 * 24 * 3_600
    watches: int = 4_096
    streams: int = 512
    calls: int = 1_024
