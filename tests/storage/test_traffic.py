"""How large messages are, counted by columns."""

import math

import numpy as np

from tandemlog_server.storage.traffic import SIZE_BOUNDS, QueueTraffic, SizeHistogram


def counted(*sizes: int) -> dict[float, int]:
    made = SizeHistogram()
    made.add_many(np.array(sizes, dtype=">i4"))
    return dict(made.cumulative())


def test_a_size_lies_in_the_bucket_whose_bound_it_reaches() -> None:
    rows = counted(1, 128, 129, 256, 257)
    assert [rows[bound] for bound in (128, 256, 512, math.inf)] == [2, 4, 5, 5]


def test_what_is_larger_than_every_bound_counts_in_the_last_bucket_alone() -> None:
    largest = float(SIZE_BOUNDS[-1])
    rows = counted(int(largest), int(largest) + 1, 2**31 - 1)
    assert (rows[largest], rows[math.inf]) == (1, 3)


def test_batches_add_up() -> None:
    traffic = QueueTraffic()
    queues, one = np.array([3, 5_000]), np.array([1, 2])
    for _ in range(2):
        traffic.count_put(queues, one, np.array([100, 600]), np.array([100, 300, 300], ">i4"))
    assert dict(traffic.record_sizes.cumulative())[256] == 2
    assert traffic.record_sizes.sum == 1_400
    messages, size = traffic.put.copies(5_001)
    assert (messages[3], messages[5_000], size[5_000], messages.sum()) == (2, 4, 1_200, 6)
