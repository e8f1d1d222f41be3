"""Puts wait for dispatch that moves, and for nothing else."""

from collections.abc import Callable

from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.positions import Position
from tandemlog_server.storage.puts.put_pacing import PutPacing


class Dispatch(Position):
    """A position that does `step` whenever it is waited for."""

    def __init__(self, step: Callable[["Dispatch"], None]) -> None:
        super().__init__("reputed")
        self.step = step
        self.waits = 0

    def wait(self, value: int, timeout_s: float) -> bool:
        self.waits += 1
        self.step(self)
        return super().wait(value, 0)


def paced(reputed: Position, confirmed: int) -> PutPacing:
    return PutPacing(Position("confirmed", confirmed), reputed, 100)


def test_nothing_waits_while_dispatch_keeps_up() -> None:
    reputed = Dispatch(lambda position: None)
    paced(reputed, 100).wait()
    assert reputed.waits == 0


def test_a_put_waits_until_dispatch_is_near_again() -> None:
    reputed = Dispatch(lambda position: position.advance(position.value + 50))
    paced(reputed, 300).wait()
    assert reputed.value == 200


def test_what_a_crash_left_behind_is_not_waited_for() -> None:
    reputed = Dispatch(lambda position: position.advance(position.value + 50))
    confirmed = Position("confirmed", 300)
    pacing = PutPacing(confirmed, reputed, 100)
    pacing.begin_at(300)
    pacing.wait()
    confirmed.advance(400)
    pacing.wait()
    assert reputed.waits == 0
    confirmed.advance(401)
    pacing.wait()
    assert reputed.value == 350


def test_dispatch_that_stands_is_waited_for_once() -> None:
    reputed = Dispatch(lambda position: None)
    pacing = paced(reputed, 300)
    pacing.wait()
    pacing.wait()
    assert reputed.waits == 1
    reputed.advance(10)
    reputed.step = lambda position: position.advance(300)
    pacing.wait()
    assert reputed.value == 300


def test_dispatch_that_has_failed_is_not_waited_for() -> None:
    reputed = Position("reputed")
    reputed.fail(StoreError("the queue is gone"))
    paced(reputed, 300).wait()
