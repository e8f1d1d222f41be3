"""Where queues end, by the word of a master whose term has just begun: what its predecessor has
acknowledged is in its log, and may not be confirmed here yet."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from fakes.stores import CONFIG, Bench
from sim.served_node import AllKnown, Turns
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls import dispatch_wait
from tandemlog_server.node.services.broker_service import BrokerService
from tandemlog_server.storage.config import ConfirmSource


def service(bench: Bench) -> BrokerService:
    nothing: Any = None
    known: Any = AllKnown()
    turns: Any = Turns()
    return BrokerService(
        bench.store, nothing, nothing, nothing, known, turns, nothing,
        require_master=lambda: None, recall=nothing,
    )  # fmt: skip


async def ends(broker: BrokerService, *, of_master: bool) -> list[int]:
    caller: Any = Caller()
    request = broker_pb2.QueueRangesRequest(topics=["T"], of_master=of_master)
    return [each.max_offset for each in (await broker.QueueRanges(request, caller)).ranges]


async def after_all(broker: BrokerService, *, of_master: bool = True) -> list[int]:
    """Where a time is that no message has reached."""
    place = broker_pb2.QueuePosition(topic="T")
    request = broker_pb2.SearchOffsetRequest(
        queues=[place], timestamp=1 << 50, boundary=broker_pb2.LOWER, of_master=of_master
    )
    return list((await broker.SearchOffset(request, Caller())).offsets)


async def refused(
    broker: BrokerService, ask: Callable[..., Coroutine[Any, Any, list[int]]] = ends
) -> bool:
    try:
        await ask(broker, of_master=True)
    except RequestRefusedError as error:
        return error.code == common_pb2.NOT_IN_SYNC
    return False


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 0.0)


async def test_a_new_master_does_not_know_the_ends_before_its_log_is_confirmed() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    store, broker = bench.store, service(bench)
    store.become_master(1)
    bench.put(10)
    store.advance_confirmed(store.log.wrote.value)
    store.reput.run_to()
    acknowledged = bench.put(3).end_offset  # by a master of which this store was the slave
    store.become_slave()
    store.become_master(2)
    assert await refused(broker)
    assert await refused(broker, after_all)
    assert await ends(broker, of_master=False) == [10]
    assert await after_all(broker, of_master=False) == [10]
    store.advance_confirmed(acknowledged)
    assert await refused(broker), "confirmed, and not dispatched"
    store.reput.run_to()
    assert await ends(broker, of_master=True) == [13]
    assert await after_all(broker) == [13]
    bench.put(4)  # nobody was told of these
    assert await ends(broker, of_master=True) == [13]
