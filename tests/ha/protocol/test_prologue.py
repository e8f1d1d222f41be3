"""What came before the log begins is taken before the first chunk, where it is asked for."""

from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import Answer, Hello, HelloAction
from tandemlog_server.ha.protocol.handshake import SlaveView
from tandemlog_server.ha.protocol.prologue import KIND
from tandemlog_server.ha.protocol.table_pieces import cut_up
from tandemlog_server.ha.slave.session import Disconnect, Prepared, SlaveSession, TakePrologue

CONFIG = HaConfig("c", "s", role=Role.SLAVE, master_endpoint="m:1")
ANSWER = Answer(
    HelloAction.CONTINUE, 4096, master_id="m", master_incarnation="i", epoch=1, file_size=4096,
    max_offset=9000, min_offset=4096, proof_start=4096, prologue=True,
)  # fmt: skip


def greeted() -> SlaveSession:
    hello = Hello("c", "s", "i1", needs_prologue=True)
    session = SlaveSession(hello, SlaveView(0, 0, 0, 4096, 0), CONFIG, 0.0)
    session.start(0.0)
    assert Prepared() not in session.receive(ANSWER, 0.0)
    return session


def test_the_log_is_prepared_when_the_last_piece_is_there() -> None:
    session = greeted()
    first, *rest = cut_up(KIND, 0, b"x" * 100, size=60)
    assert session.receive(first, 0.0) == []
    (last,) = rest
    assert session.receive(last, 0.0) == [TakePrologue(b"x" * 100), Prepared()]
    (again,) = session.receive(cut_up(KIND, 0, b"x")[0], 0.0)
    assert isinstance(again, Disconnect)
    assert "not announced" in again.reason


def test_a_chunk_before_it_ends_the_stream() -> None:
    chunk = Chunk(
        offset=4096, epoch=1, epoch_start=0, confirm=0, max_offset=9000, sent_at_ms=0,
        master_epoch=1, data=b"a",
    )  # fmt: skip
    (ended,) = greeted().receive(chunk, 0.0)
    assert isinstance(ended, Disconnect)
    assert "before the prologue" in ended.reason
