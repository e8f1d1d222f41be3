"""Rules of what is derived from damaged records, switched off one at a time: the simulation of the
services beside the scrub must notice. With each stands the seed at which the search begins, since
few worlds have such damage where and when it counts."""

from sim.store_mutations import Patch, never
from tandemlog_server.storage.dispatch import missed_records

MUTATIONS: dict[str, tuple[int, list[Patch]]] = {
    "folds miss what was damaged when they were made": (
        2, [(missed_records, "concerns_folds", never)]
    ),
}  # fmt: skip
