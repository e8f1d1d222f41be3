"""What came before the begin of a log, for a slave whose log begins there.

    the cluster's log    [q0][q1]....[q9] expired |......................|
    the slave's log                               |......................|
    the prologue         q stands at 10 ──────────▲

If all records of a queue have expired, the log does not contain its number, so the slave could not
know it: its queue would begin at 0 again if it became master. So a slave that has no log yet, or
has lost that knowledge, asks for it in its hello, and the master sends the prologue
(storage/recovery/prologue.py) in pieces between the answer and the first chunk. It is durable on
the slave before a byte of log is; if the stream breaks before that, the log is still empty and the
slave asks again. It covers only what is below the log's begin, so no truncation and no later master
changes it.
"""

from ..errors import HaError
from ..store_port import StorePort
from .frames import encode_master_frame
from .table_pieces import cut_up

KIND = "prologue"


def prologue_frames(store: StorePort, offset: int) -> list[bytes]:
    """What `store` knows of what came before log offset `offset`. Raises HaError if that is too
    much to be sent."""
    try:
        pieces = cut_up(KIND, 0, store.prologue(offset))
    except ValueError as error:
        raise HaError(str(error)) from error
    return [encode_master_frame(piece) for piece in pieces]
