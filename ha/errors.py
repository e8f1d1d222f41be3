"""The errors between a master and its slaves. Each docstring says what happens next."""

from typing import TypeVar


class HaError(Exception):
    """Base of this package's errors; callers that only retry later catch this one."""


class ProtocolError(HaError):
    """The peer broke the protocol; the stream ends and the slave opens a new one."""


class HandshakeRefusedError(HaError):
    """The master, or this slave, refuses to join the two logs.

    `retry` is False if an operator has to act; the slave then asks again only now and then.
    """

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class DivergedError(HaError):
    """Equal epoch tables, different bytes: the tables cannot be trusted. The slave's next handshake
    proves with checksums what is equal.
    """

    def __init__(self, start: int, end: int, mine: int, theirs: int) -> None:
        super().__init__(
            f"the log's bytes {start}..{end} have CRC {mine:#010x} here and {theirs:#010x} on "
            "the master although the epoch tables agree; the logs are compared by checksums "
            "next"
        )
        self.start = start
        self.end = end


class LogMovedError(HaError):
    """Retention has deleted bytes that the handshake was about. The stream ends; the next handshake
    begins with what is left."""


class ChunkDamagedError(HaError):
    """A chunk differs from what the master has read, or has no record where one must begin. Nothing
    from there on is stored or acknowledged; the next stream asks for it again."""


class TooManyError(HaError):
    """One stream or one comparison more than this node serves at a time; try again later."""


class StateFileError(HaError):
    """The replication state of this store cannot be read, or belongs to another node."""


class NotRunningError(HaError):
    """A call that needs a started master or slave."""


Error = TypeVar("Error", bound=BaseException)


def without_frames(error: Error) -> Error:
    """`error`, its tracebacks dropped. Their frames hold the bytes of the connection, and tasks
    that hold the error: a ring that only a full collection frees, many connections later. What the
    error says is all that is logged of it."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
