"""Answers on the connection between two nodes' doors: one may be as large as a batch makes it."""

from tandemlog_server.node.remoting.cluster.master_link import _Wire
from tandemlog_server.rocketmq.wire.remoting import RESPONSE_FLAG, Command, encode_command

BATCH, SEND, MOST_IN_BATCH = 320, 310, 65_536
ID = "7F0000010000271100000000000A0001"


async def test_the_answer_to_a_large_batch_ends_no_other_request() -> None:
    wire = _Wire(lambda _: None)
    wire.open = True
    _, other = wire.write(Command(SEND, 0), 0)
    number, batch = wire.write(Command(BATCH, 0), 0)
    assert other is not None
    assert batch is not None
    ids = ",".join([ID] * MOST_IN_BATCH)
    wire.data_received(encode_command(Command(0, number, RESPONSE_FLAG, "", {"msgId": ids})))
    assert not other.done()
    assert batch.result().fields["msgId"] == ids


async def test_an_answer_before_bytes_that_are_none_counts() -> None:
    ended: list[object] = []
    wire = _Wire(ended.append)
    wire.open = True
    first, answered = wire.write(Command(SEND, 0), 0)
    _, lost = wire.write(Command(SEND, 0), 0)
    assert answered is not None
    assert lost is not None
    answer = encode_command(Command(0, first, RESPONSE_FLAG, "", {"msgId": ID}))
    wire.data_received(answer + b"\xff" * 64)
    assert answered.result().fields["msgId"] == ID
    assert lost.exception() is not None
    assert ended == [wire]
