"""What is said of services whose promises are broken."""

from typing import Any, cast

import pytest

from chaos.checks import Finding
from chaos.services import DELAYED, JOBS, ORDERS, Services


class FakeNode:
    """Serves these bodies, all in the first queue."""

    node_id = "n1"

    def __init__(self, **topics: list[bytes]) -> None:
        self._topics = topics

    def read_queue(self, topic: str, queue_id: int) -> list[Any]:
        bodies = self._topics.get(topic.removeprefix("chaos-"), []) if queue_id == 0 else []
        return [type("Record", (), {"body": body}) for body in bodies]


@pytest.fixture
def services() -> Services:
    made = Services(["127.0.0.1:1"])
    made.jobs, made.delayed, made.committed, made.rolled_back = {3}, {1}, {2}, {5}
    made.handled.update([3])
    return made


def checked(services: Services, **topics: list[bytes]) -> list[Finding]:
    return services.check(cast("Any", [FakeNode(**topics)]))


def test_kept_promises(services: Services) -> None:
    assert checked(services, jobs=[b"3"], delayed=[b"1"], orders=[b"2", b"8"]) == []


def test_broken_promises(services: Services) -> None:
    services.handled.clear()
    found = checked(services, delayed=[b"1", b"1"], orders=[b"5"])
    assert found == [
        Finding("lost", "job 3"),
        Finding("lost", f"n1: {JOBS} has no 3"),
        Finding("lost", f"n1: {ORDERS} has no 2"),
        Finding("duplicated", f"n1 has b'1' 2 times in {DELAYED}"),
        Finding("vanished", f"n1 has 5 of {ORDERS}, rolled back"),
    ]


def test_what_has_not_arrived_yet(services: Services) -> None:
    assert not services.arrived(cast("Any", [FakeNode(jobs=[b"3"])]))
