"""Half messages, put into a bench's store as a client does it, and the desk that ends them."""

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.constants import UNIQ_KEY
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.transaction.half import PLACE_OF_HALVES, half_properties
from tandemlog_server.storage.puts.put_path import PutResult
from tandemlog_server.storage.services.transaction_desk import TransactionDesk


def half_put(
    name: str,
    transaction_id: str = "tx",
    *,
    topic: str = "T",
    queue_id: int = 0,
    group: str = "producers",
    **more: str,
) -> Put:
    """One half, whose body and key are `name`; `more` properties."""
    topic_of_halves, queue_of_halves = PLACE_OF_HALVES
    properties = half_properties(
        topic, queue_id, group=group, key=name, transaction_id=transaction_id
    )
    return Put(
        topic_of_halves,
        queue_of_halves,
        name.encode(),
        encode_properties({UNIQ_KEY: name, **properties, **more}),
    )


def put_halves(bench: Bench, *puts: Put, holder: str = "") -> PutResult:
    return bench.store.put(batch_of(puts), holder=holder)


def ready_desk(bench: Bench) -> TransactionDesk:
    """The desk of a master that has dispatched all."""
    desk = TransactionDesk(bench.store)
    desk.begin()
    bench.settle()
    assert desk.ready
    return desk


def finished(bench: Bench, desk: TransactionDesk) -> None:
    """Nothing is left to write."""
    bench.settle()
    while desk.finish():
        bench.settle()
