"""A refusal counts for ever only from a master that could know: not from before an election."""

import pytest

from tandemlog.errors import NotMasterError, TandemlogError
from tandemlog.message import Message
from tandemlog.produce.chain import Chain, Numbers
from tandemlog.produce.framing import Framer
from tandemlog.produce.put_batch import NullSink, OpenBatch, PutBatch
from tandemlog.v1 import broker_pb2, common_pb2

FRAMER = Framer(now_ms=lambda: 1)
FINAL = (
    common_pb2.SEQUENCE_GAP,
    common_pb2.UNKNOWN_PRODUCER,
    common_pb2.PRODUCER_FENCED,
    common_pb2.UNKNOWN_TOPIC,
    common_pb2.SEQUENCE_CONFLICT,
)


class Noting(NullSink):
    def __init__(self) -> None:
        self.errors: list[TandemlogError] = []

    def failed(self, error: TandemlogError) -> None:
        self.errors.append(error)


class Rig:
    """One request that a master of epoch 2 may have stored, and a stream to that of `epoch`."""

    def __init__(self, epoch: int, *, newest: int = 2, fixed: bool = False) -> None:
        self.newest = newest
        numbers = Numbers("p", fixed=fixed)
        self.chain = Chain(numbers, lambda size: None, newest_epoch=lambda: self.newest)
        self.sink = Noting()
        batch = OpenBatch(broker_pb2.CLUSTER, self.sink, 0.0)
        batch.add(FRAMER.frame(Message("t", b"x"), 0), "t", 0)
        self.batch: PutBatch = batch.seal(50.0)
        self.chain.add(self.batch)
        self.chain.stream_opened(2)
        assert self.chain.to_write() is self.batch
        self.chain.stream_ended()
        self.chain.stream_opened(epoch)
        assert self.chain.to_write() is self.batch

    def refused(self, code: common_pb2.ErrorCode.ValueType, epoch: int) -> TandemlogError:
        """Why the stream ends after this answer."""
        error = common_pb2.Error(code=code, master_epoch=epoch)
        answer = broker_pb2.AppendResponse(
            request_id=self.batch.request_id,
            status=broker_pb2.MESSAGE_ILLEGAL,
            error=error,
            master_epoch=epoch,
        )
        with pytest.raises(TandemlogError) as ended:
            self.chain.received(answer, "n")
        return ended.value


def unchanged(rig: Rig) -> bool:
    rig.chain.stream_ended()
    rig.chain.stream_opened(3)
    again = rig.chain.to_write() is rig.batch
    return again and (rig.batch.epoch, rig.batch.sequence) == (0, 0) and not rig.sink.errors


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("code", FINAL)
def test_it_is_written_again_under_its_number(
    code: common_pb2.ErrorCode.ValueType, *, fixed: bool
) -> None:
    rig = Rig(1, fixed=fixed)
    ended = rig.refused(code, 1)
    assert isinstance(ended, NotMasterError)
    assert ended.elsewhere
    assert "epoch 1" in str(ended)
    assert rig.batch.in_doubt, "the master of epoch 2 may have stored it"
    assert unchanged(rig)


def test_a_node_of_0_1_is_taken_at_the_epoch_of_its_description() -> None:
    rig = Rig(1)
    assert isinstance(rig.refused(common_pb2.SEQUENCE_GAP, 0), NotMasterError)
    assert unchanged(rig)
    old = Rig(2)
    old.refused(common_pb2.SEQUENCE_GAP, 0)
    assert not old.batch.in_doubt


def test_an_epoch_that_was_heard_of_meanwhile_counts() -> None:
    rig = Rig(2, newest=3)
    assert isinstance(rig.refused(common_pb2.SEQUENCE_GAP, 2), NotMasterError)
    assert unchanged(rig)


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_gap_of_a_master_that_can_know_begins_a_new_epoch(epoch: int) -> None:
    rig = Rig(2)
    rig.refused(common_pb2.SEQUENCE_GAP, epoch)
    assert not rig.batch.in_doubt
    rig.chain.stream_ended()
    rig.chain.stream_opened(epoch)
    assert (rig.chain.numbers.epoch, rig.batch.sequence) == (1, None)


def test_an_answer_tells_that_the_stream_is_in_a_later_term() -> None:
    """What was written before that may be stored in the later one: a master between the two does
    not know it."""
    rig = Rig(2)
    rig.refused(common_pb2.BUSY, 4)
    assert rig.batch.written_in == 4
    rig.chain.stream_ended()
    rig.chain.stream_opened(3)
    rig.chain.to_write()
    assert isinstance(rig.refused(common_pb2.SEQUENCE_GAP, 3), NotMasterError)


def test_a_refusal_that_may_pass_says_that_this_attempt_stored_nothing() -> None:
    rig = Rig(1)
    rig.refused(common_pb2.NOT_IN_SYNC, 1)
    assert rig.batch.in_doubt, "by the attempt before"
    assert unchanged(rig)
