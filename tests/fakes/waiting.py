"""Messages that come later, put into a bench's store as a client does it."""

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.constants import SCHEDULE_TOPIC, TIMER_TOPIC, UNIQ_KEY
from tandemlog.format.delay.framing import after, at, by_level
from tandemlog.format.record.properties import encode_properties
from tandemlog_server.storage.puts.put_path import PutResult
from tandemlog_server.storage.services.delay_desk import DelayDesk


def waiting_put(
    bench: Bench,
    name: str,
    *,
    delay_ms: int | None = None,
    due_ms: int | None = None,
    level: int | None = None,
    topic: str = "T",
    queue_id: int = 0,
) -> Put:
    """One message, whose body and key are `name`."""
    now = bench.clock.now_ms()
    place, place_queue = TIMER_TOPIC, 0
    if level is not None:
        place, place_queue = SCHEDULE_TOPIC, level - 1
        more = by_level(topic, queue_id, level)
    elif due_ms is not None:
        more = at(topic, queue_id, due_ms)
    else:
        assert delay_ms is not None
        more = after(topic, queue_id, delay_ms, now)
    properties = encode_properties({UNIQ_KEY: name, **more})
    return Put(place, place_queue, name.encode(), properties)


def put_waiting(bench: Bench, *puts: Put) -> PutResult:
    return bench.store.put(batch_of(puts))


def ready_desk(bench: Bench) -> DelayDesk:
    """The desk of a master that has dispatched all."""
    desk = DelayDesk(bench.store)
    desk.begin()
    bench.settle()
    assert desk.ready
    return desk


def come(bench: Bench, desk: DelayDesk, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Let all come that is due now; every message of the queue."""
    while desk.deliver():
        pass
    bench.settle()
    return bench.bodies(topic, queue_id)
