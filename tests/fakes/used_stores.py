"""A store in which every service has done something."""

from dataclasses import replace
from typing import Any

import numpy as np

from fakes.halves import finished, half_put, put_halves
from fakes.halves import ready_desk as transactions_of
from fakes.stores import CONFIG, Bench
from fakes.waiting import come, put_waiting, waiting_put
from fakes.waiting import ready_desk as delays_of
from tandemlog.format.delay.handle import RecallHandle
from tandemlog.format.lease.progress import QueueProgress
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog_server.storage.services.lease_desk import LeaseDesk
from tandemlog_server.storage.services.transaction_desk import EndRequest


def numbers(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def used_store() -> Bench:
    """A store in which each service has done something; persisted, not closed."""
    bench = Bench(replace(CONFIG, commit_log_file_size=1 << 16))
    for sequence in range(3):
        bench.put_marked(ProducerMark("p", 0, sequence, 0, 2), 2)
    delays, transactions = delays_of(bench), transactions_of(bench)
    leases = LeaseDesk(bench.store)
    leases.begin()
    put_waiting(bench, *(waiting_put(bench, name, delay_ms=10**7) for name in "abc"))
    put_waiting(bench, waiting_put(bench, "came", level=1))
    bench.settle()
    third = bench.store.delays.rows.below(1 << 62, 9).offsets.tolist()[2]
    delays.recall(RecallHandle("T", 0, "c", third))
    bench.clock.advance(2)
    assert come(bench, delays)[-1] == b"came"
    put_halves(bench, half_put("h1", "paid"), half_put("h2", "paid"), half_put("h3", "returned"))
    put_halves(bench, half_put("h4", "open"))
    bench.settle()
    transactions.commit(EndRequest("paid", offsets=(GroupOffset("billing", "T", 0, 5),)))
    transactions.roll_back(EndRequest("returned"))
    finished(bench, transactions)
    leases.put_progress([progress()])
    bench.settle()
    bench.store.persist()
    return bench


def progress(**other: Any) -> QueueProgress:
    """Of six messages 0 to 2 and 4 are done, 3 and 5 were tried."""
    values: dict[str, Any] = {
        "floor": 3, "ended_starts": numbers(4), "ended_ends": numbers(5),
        "offsets": numbers(3, 5), "attempts": np.array([2, 1], np.uint16),
        "first_ms": numbers(70, 80), "errors": {3: "no stock"},
    }  # fmt: skip
    return QueueProgress("billing", "T", 0, **values | other)
