"""What a scrape of /metrics asks an elected node for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectionNumbers:
    """`lease_remaining_s` is 0 on a node that does not lead; `coordinator_age_s` is -1 if the
    coordinator was never heard, `accepted_age_s` if it has accepted no change of this node;
    `record_epoch` is that of the cluster's record there, 0 if it is not known; `unclean_epoch` is
    the newest that may have begun without acknowledged messages, 0 if none did."""

    lease_remaining_s: float
    coordinator_age_s: float
    accepted_age_s: float
    record_epoch: int
    paused: bool
    terms_won: int
    incarnation_changes: int
    unclean_epoch: int = 0
