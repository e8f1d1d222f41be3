"""What a frame may hold. A node keeps and compares a peer's strings, lists and numbers and sends
them to others, so each has a limit. A frame above a limit ends its stream, and the error names the
field.

    identifiers   node and cluster ids, incarnations, kinds of tables     ≤ 255 bytes
    endpoints     empty or host:port                                      ≤ 261 bytes
    sentences     reasons, states                                         ≤ 4 KiB; cut by the sender
    lists         epochs, checksums, members, tables
    numbers       offsets and times 0 .. 2**62; epochs 0 .. MAX_EPOCH

MAX_EPOCH leaves half of an int32's numbers unused: a node that received the highest number could
never begin another term. Limits of a frame in bytes are checked before it is decoded.
"""

from collections.abc import Iterable, Sized

from tandemlog.format.constants import MAX_GRPC_MESSAGE

from .errors import ProtocolError

MAX_ID_BYTES = 255
MAX_ENDPOINT_BYTES = 261
MAX_SENTENCE_BYTES = 4 << 10
MAX_EPOCHS = 1 << 16
MAX_CHECKSUMS = 1 << 17
MAX_MEMBERS = 256
MAX_TABLES = 16
MAX_OFFSET = 1 << 62
MAX_EPOCH = 1 << 30
MAX_SLAVE_FRAME_BYTES = 8 << 20
MAX_ACK_BYTES = 16 << 10
MAX_MASTER_FRAME_BYTES = MAX_GRPC_MESSAGE
MAX_SMALL_MASTER_FRAME_BYTES = 8 << 20
"""Limit of every frame except a chunk."""


def check_identifiers(frame: str, **values: str) -> None:
    """Raises ProtocolError, as all of these, for a name that is too long or not printable."""
    for name, value in values.items():
        _check_length(frame, name, value, MAX_ID_BYTES)
        if not value.isprintable():
            raise ProtocolError(f"{frame}: {name} holds characters that cannot be printed")


def check_endpoints(frame: str, **values: str) -> None:
    for name, value in values.items():
        _check_length(frame, name, value, MAX_ENDPOINT_BYTES)
        host, colon, port = value.rpartition(":")
        sound = value.isascii() and value.isprintable() and " " not in value
        if value and not (sound and colon and host and port.isdecimal() and int(port) <= 65535):
            raise ProtocolError(f"{frame}: {name} must be host:port, not {clipped(value)!r}")


def check_sentences(frame: str, **values: str) -> None:
    for name, value in values.items():
        _check_length(frame, name, value, MAX_SENTENCE_BYTES)


def check_offsets(frame: str, **values: int) -> None:
    for name, value in values.items():
        if not 0 <= value <= MAX_OFFSET:
            raise ProtocolError(f"{frame}: {name} must be 0 .. {MAX_OFFSET}, not {value}")


def check_epochs(frame: str, **values: int) -> None:
    for name, value in values.items():
        if not 0 <= value <= MAX_EPOCH:
            raise ProtocolError(
                f"{frame}: {name} must be 0 .. {MAX_EPOCH}, not {value}, which no cluster reaches"
            )


def check_count(frame: str, name: str, values: Sized, most: int) -> None:
    if len(values) > most:
        raise ProtocolError(f"{frame}: {len(values)} {name}, the most is {most}")


def check_rising(frame: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Epochs and where they start: both grow strictly."""
    before = (-1, -1)
    for epoch, start in epochs:
        check_epochs(frame, epoch=epoch)
        check_offsets(frame, epoch_start=start)
        if epoch <= before[0] or start <= before[1]:
            raise ProtocolError(f"{frame}: epoch {epoch} from {start} cannot follow {before}")
        before = epoch, start


def check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise ProtocolError(f"{what} of {size} bytes, the most is {most}")


def clipped(text: str, most: int = 100) -> str:
    """`text` in at most `most` bytes of UTF-8."""
    data = text.encode(errors="replace")
    return text if len(data) <= most else data[: most - 3].decode(errors="ignore") + "..."


def sentence(text: str) -> str:
    """A reason or a state as it may be sent."""
    return clipped(text, MAX_SENTENCE_BYTES)


def _check_length(frame: str, name: str, value: str, most: int) -> None:
    # a character is at least a byte: what is far too long is not encoded to be counted
    if len(value) > most or len(value.encode(errors="replace")) > most:
        raise ProtocolError(f"{frame}: {name} of {len(value)} characters, the most is {most} bytes")
