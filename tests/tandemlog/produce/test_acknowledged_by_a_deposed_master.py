"""An acknowledgement counts only from a master of the newest epoch: what an older one stores may be
in no log that counts."""

from typing import Any

import pytest

from tandemlog.errors import OutcomeUnknownError, TandemlogError
from tandemlog.message import Message
from tandemlog.produce.chain import Chain, Numbers
from tandemlog.produce.framing import Framer
from tandemlog.produce.put_batch import NullSink, OpenBatch, PutBatch
from tandemlog.v1 import broker_pb2, common_pb2

FRAMER = Framer(now_ms=lambda: 1)


class Noting(NullSink):
    def __init__(self) -> None:
        self.errors: list[TandemlogError] = []
        self.answers: list[Any] = []

    def failed(self, error: TandemlogError) -> None:
        self.errors.append(error)

    def acknowledged(self, answer: Any) -> None:
        self.answers.append(answer)


class Rig:
    """`count` requests on a stream to the master of epoch 2; epoch `newest` was heard of."""

    def __init__(
        self, newest: int, *, producer_id: str | None = "p", fixed: bool = False, count: int = 1
    ) -> None:
        self.newest = newest
        self.chain = Chain(
            Numbers(producer_id, fixed=fixed), lambda size: None, newest_epoch=lambda: self.newest
        )
        self.sink = Noting()
        self.batches = [self.added() for _ in range(count)]
        self.open(2)

    def added(self) -> PutBatch:
        batch = OpenBatch(broker_pb2.CLUSTER, self.sink, 0.0)
        batch.add(FRAMER.frame(Message("t", b"x"), 0), "t", 0)
        sealed = batch.seal(50.0)
        self.chain.add(sealed)
        return sealed

    def open(self, epoch: int) -> None:
        self.chain.stream_opened(epoch)
        while self.chain.to_write() is not None:
            pass

    def stored(self, batch: PutBatch, epoch: int) -> None:
        answer = broker_pb2.AppendResponse(
            request_id=batch.request_id, status=broker_pb2.PUT_OK, master_epoch=epoch
        )
        answer.segments.add(count=1, queue_offsets=bytes(8))
        self.chain.received(answer, "n")


@pytest.mark.parametrize("fixed", [False, True])
def test_it_is_asked_again_under_its_number(*, fixed: bool) -> None:
    rig = Rig(3, fixed=fixed)
    [batch] = rig.batches
    with pytest.raises(OutcomeUnknownError, match="epoch 2, but epoch 3 was seen"):
        rig.stored(batch, 2)
    assert (rig.sink.answers, rig.sink.errors) == ([], [])
    assert batch.in_doubt
    rig.chain.stream_ended()
    rig.open(3)
    assert (batch.epoch, batch.sequence) == (0, 0)
    rig.stored(batch, 3)
    assert (len(rig.sink.answers), len(rig.chain)) == (1, 0)


def test_all_that_is_in_flight_is_asked_again() -> None:
    rig = Rig(3, count=3)
    first, *rest = rig.batches
    rig.stored(first, 2)
    rig.stored(rest[0], 2)
    with pytest.raises(OutcomeUnknownError):
        rig.stored(rest[1], 2)
    rig.chain.stream_ended()
    rig.open(3)
    for batch in rig.batches:
        rig.stored(batch, 3)
    assert (len(rig.sink.answers), rig.sink.errors) == (3, [])


def test_what_is_never_repeated_is_unknown_and_the_stream_ends() -> None:
    rig = Rig(3, producer_id=None)
    with pytest.raises(OutcomeUnknownError):
        rig.stored(rig.batches[0], 2)
    assert [type(each) for each in rig.sink.errors] == [OutcomeUnknownError]
    assert not rig.sink.answers


@pytest.mark.parametrize("epoch", [0, 2, 3])
def test_the_master_of_the_newest_epoch_is_believed(epoch: int) -> None:
    """One of 0.1 says no epoch: it is that of its description."""
    rig = Rig(2)
    rig.stored(rig.batches[0], epoch)
    assert len(rig.sink.answers) == 1


def test_a_node_of_0_1_that_was_deposed() -> None:
    rig = Rig(3)
    with pytest.raises(OutcomeUnknownError):
        rig.stored(rig.batches[0], 0)
    assert not rig.sink.answers


def test_epochs_of_a_cluster_that_was_left_do_not_count() -> None:
    """Else no refusal of the right one, in a lower epoch, would ever be believed."""
    rig = Rig(0)
    rig.chain.stream_ended()
    rig.chain.cluster_left()
    rig.open(1)
    error = common_pb2.Error(code=common_pb2.MESSAGE_TOO_LARGE, master_epoch=1)
    answer = broker_pb2.AppendResponse(
        request_id=rig.batches[0].request_id,
        status=broker_pb2.MESSAGE_ILLEGAL,
        error=error,
        master_epoch=1,
    )
    rig.chain.received(answer, "n")
    assert [type(each) for each in rig.sink.errors] == [OutcomeUnknownError]
