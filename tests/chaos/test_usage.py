"""What a process takes, and by how much it grows."""

import os

from chaos.usage import Usage, taken_by


def test_a_process_and_one_that_is_gone() -> None:
    own = taken_by(os.getpid())
    assert own is not None
    assert own.resident_mb > 1
    assert own.descriptors > 2
    assert taken_by(1 << 30) is None


def test_growth_is_that_of_one_process() -> None:
    usage = Usage()
    assert usage.report()["samples"] == 0
    usage.sample([os.getpid(), 1 << 30])
    opened = [open(os.devnull) for _ in range(10)]  # noqa: SIM115
    usage.sample([os.getpid()])
    assert usage.report()["descriptor_growth"] == 0, "since the second sample"
    opened += [open(os.devnull) for _ in range(5)]  # noqa: SIM115
    usage.sample([os.getpid()])
    for each in opened:
        each.close()
    report = usage.report()
    assert report["descriptor_growth"] == 5
    assert report["samples"] == 3
