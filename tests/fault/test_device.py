"""The faults of the simulated disk, without the file system above it."""

import errno
import threading
from collections.abc import Callable

import pytest
from fault.test_write_cache import MemoryMedium

from helpers.running import wait_until
from helpers.simulated_disk.device import BadRange, Device, Flushes
from helpers.simulated_disk.write_cache import SECTOR

ONE, TWO = b"1" * SECTOR, b"2" * SECTOR


@pytest.fixture
def device() -> Device:
    return Device(MemoryMedium())


def cut_that_takes_everything(device: Device) -> None:
    """The seed of one that leaves nothing of what is cached."""

    def taken(seed: int) -> bool:
        trial = Device(MemoryMedium())
        trial.write(0, 0, ONE)
        return trial.cut_power(seed).lost == 1

    device.cut_power(next(seed for seed in range(100) if taken(seed)))


def refused(call: Callable[[], object]) -> bool:
    """Whether it ends with EIO."""
    try:
        call()
    except OSError as problem:
        return problem.errno == errno.EIO
    return False


class InAThread:
    """A flush that runs beside the test."""

    def __init__(self, device: Device) -> None:
        self.refused: bool | None = None
        self._device = device
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until("the flush", lambda: device.counts()["waiting"] == 1)

    def _run(self) -> None:
        self.refused = refused(lambda: self._device.flush(0))

    def end(self) -> bool | None:
        self._thread.join(60)
        return self.refused


def test_what_was_flushed_survives(device: Device) -> None:
    device.write(0, 0, ONE)
    device.flush(0)
    device.write(0, SECTOR, TWO)
    cut_that_takes_everything(device)
    assert device.read(1, 0, 2 * SECTOR) == ONE + bytes(SECTOR)


def test_a_disk_that_lies_loses_what_it_said_to_have_flushed(device: Device) -> None:
    device.set_flushes(Flushes.LIES)
    device.write(0, 0, ONE)
    device.flush(0)
    cut_that_takes_everything(device)
    assert device.read(1, 0, SECTOR) == bytes(SECTOR)


def test_calls_of_the_life_before_fail(device: Device) -> None:
    device.cut_power(0)
    assert refused(lambda: device.write(0, 0, ONE))
    assert refused(lambda: device.read(0, 0, SECTOR))
    assert refused(lambda: device.flush(0))
    device.write(1, 0, ONE)
    assert device.read(1, 0, SECTOR) == ONE


def test_a_flush_that_is_held_is_answered_when_it_is_let_go(device: Device) -> None:
    device.write(0, 0, ONE)
    device.set_flushes(Flushes.HELD)
    flush = InAThread(device)
    device.write(0, SECTOR, TWO)  # the disk takes writes meanwhile; the flush is not for them
    assert device.read(0, 0, 2 * SECTOR) == ONE + TWO
    assert flush.refused is None
    device.set_flushes(Flushes.ANSWERED)
    assert flush.end() is False
    cut_that_takes_everything(device)
    assert device.read(1, 0, 2 * SECTOR) == ONE + bytes(SECTOR)


@pytest.mark.parametrize("delay_s", [0.0, 600.0])
def test_a_cut_ends_the_flushes_that_wait(device: Device, delay_s: float) -> None:
    device.write(0, 0, ONE)
    device.set_flushes(Flushes.HELD, delay_s)
    flush = InAThread(device)
    cut_that_takes_everything(device)
    assert flush.end() is True
    assert device.read(1, 0, SECTOR) == bytes(SECTOR)


def test_a_flush_that_fails_makes_nothing_durable(device: Device) -> None:
    device.write(0, 0, ONE)
    device.set_flushes(Flushes.FAILED)
    assert refused(lambda: device.flush(0))
    cut_that_takes_everything(device)
    assert device.read(1, 0, SECTOR) == bytes(SECTOR)


def test_a_bad_range_fails_the_calls_that_touch_it(device: Device) -> None:
    device.set_bad([BadRange("read", SECTOR, 2 * SECTOR), BadRange("write", 0, SECTOR)])
    assert not refused(lambda: device.read(0, 0, SECTOR))
    assert refused(lambda: device.read(0, 0, SECTOR + 1))
    assert refused(lambda: device.read(0, 2 * SECTOR - 1, SECTOR))
    assert not refused(lambda: device.read(0, 2 * SECTOR, SECTOR))
    assert refused(lambda: device.write(0, 0, ONE))
    assert not refused(lambda: device.write(0, SECTOR, ONE))
    device.cut_power(0)
    assert refused(lambda: device.read(1, SECTOR, SECTOR)), "power does not mend it"
    device.set_bad([])
    assert not refused(lambda: device.read(1, SECTOR, SECTOR))
