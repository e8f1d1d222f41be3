"""A producer whose epoch the caller gave: a number never changes what it stands for."""

import pytest

from tandemlog.errors import TandemlogError
from tandemlog.message import Message
from tandemlog.produce.chain import Chain, Numbers, ProducerEndedError
from tandemlog.produce.framing import Framer
from tandemlog.produce.put_batch import NullSink, OpenBatch, PutBatch
from tandemlog.v1 import broker_pb2, common_pb2

FRAMER = Framer(now_ms=lambda: 1)


class Noting(NullSink):
    def __init__(self) -> None:
        self.errors: list[TandemlogError] = []

    def failed(self, error: TandemlogError) -> None:
        self.errors.append(error)


def request(deadline: float = 50.0) -> PutBatch:
    batch = OpenBatch(broker_pb2.CLUSTER, Noting(), 0.0)
    batch.add(FRAMER.frame(Message("t", b"x"), 0), "t", 0)
    return batch.seal(deadline)


def chain_of(*batches: PutBatch) -> Chain:
    chain = Chain(Numbers("p", epoch=7, fixed=True), lambda size: None)
    for batch in batches:
        chain.add(batch)
    chain.stream_opened()
    return chain


def refusal(batch: PutBatch, code: common_pb2.ErrorCode.ValueType) -> broker_pb2.AppendResponse:
    return broker_pb2.AppendResponse(
        request_id=batch.request_id,
        status=broker_pb2.MESSAGE_ILLEGAL,
        error=common_pb2.Error(code=code),
    )


def test_numbers_are_those_of_the_order_in_which_requests_were_given() -> None:
    batches = [request() for _ in range(3)]
    chain_of(*batches)
    assert [(each.epoch, each.sequence) for each in batches] == [(7, 0), (7, 1), (7, 2)]


@pytest.mark.parametrize(
    "code", [common_pb2.SEQUENCE_GAP, common_pb2.UNKNOWN_PRODUCER, common_pb2.UNKNOWN_TOPIC]
)
def test_what_needs_new_numbers_ends_the_producer(
    code: common_pb2.ErrorCode.ValueType,
) -> None:
    first, second = request(), request()
    chain = chain_of(first, second)
    chain.to_write()
    with pytest.raises(ProducerEndedError):
        chain.received(refusal(first, code), "n")
    assert (second.epoch, second.sequence) == (7, 1)


def test_a_gap_behind_a_busy_node_is_written_again_under_its_number() -> None:
    first, second = request(), request()
    chain = chain_of(first, second)
    chain.to_write()
    chain.to_write()
    chain.received(refusal(first, common_pb2.BUSY), "n")
    with pytest.raises(TandemlogError) as caught:
        chain.received(refusal(second, common_pb2.SEQUENCE_GAP), "n")
    assert caught.value.retryable
    chain.stream_opened()
    assert [chain.to_write(), chain.to_write()] == [first, second]
    assert [(each.epoch, each.sequence) for each in (first, second)] == [(7, 0), (7, 1)]


def test_an_expired_request_leaves_its_number_behind() -> None:
    first, second = request(deadline=1.0), request()
    chain = chain_of(first, second)
    chain.expire(2.0, 1.0)
    assert chain.to_write() is second
    assert second.sequence == 1
