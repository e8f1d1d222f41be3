"""A store can open a file when no descriptor is left, and the spare ones come back."""

import errno
import os

import pytest

from tandemlog_server.storage.disk.spare_descriptors import SpareDescriptors


def test_a_spare_one_serves_and_is_had_again() -> None:
    spares = SpareDescriptors()
    spares.keep(3)
    answers: list[OSError | int] = [OSError(errno.EMFILE, "x"), OSError(errno.ENFILE, "x"), 0]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return os.open(os.devnull, os.O_RDONLY)

    handle = spares.open(call)
    assert len(spares) == 1
    spares.close(handle)
    assert len(spares) == 3
    spares.keep(0)
    assert len(spares) == 0


def test_without_spares_the_error_stays() -> None:
    def call() -> int:
        raise OSError(errno.EMFILE, "x")

    with pytest.raises(OSError, match="x"):
        SpareDescriptors().open(call)


def test_other_errors_cost_no_spare() -> None:
    spares = SpareDescriptors()
    spares.keep(2)

    def call() -> int:
        raise OSError(errno.EIO, "x")

    with pytest.raises(OSError, match="x"):
        spares.open(call)
    assert len(spares) == 2
    spares.keep(0)
