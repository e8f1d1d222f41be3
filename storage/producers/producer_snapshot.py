"""The producer table on disk: `tandemlog/producers`.

    {"version": 2, "log_offset": P, "open": producer or null, "producers": n,
     "holders": [[whose share they count for, how many rows one after the other], ...]}  one line
    n rows, those whose last request is the oldest first:
        u1 length, producer id | u1 whether there is a floor, i4 epoch, i8 sequence
        | u2 number of requests | the requests, each begins with its length (producer_requests.py)
    crc32 of all that, 8 hexadecimal digits                                          one line

True for the log below P. Encoded rows are kept until their producer changes, so that of thousands
of producers only the recently active ones are encoded again; the rows are joined without the lock.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from struct import Struct
from typing import Any, Final

from tandemlog.format.errors import FormatError

from ..folds.fold import ANYWHERE
from ..folds.snapshot_form import decode_snapshot, encode_snapshot
from .producer_requests import Producer

VERSION: Final = 2
_FLOOR: Final = Struct("<?iq")
_SHORT: Final = Struct("<H")


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The whole table, true for the log below `log_offset`. `generation` is that of the table's
    log: another one after a cut. `changes` tells two states of the table apart."""

    log_offset: int
    generation: int
    changes: int
    open: str | None
    rows: Sequence[bytes]
    holders: Sequence[tuple[str, int]] = ()

    @property
    def needs_from(self) -> int:
        return ANYWHERE

    def encode(self) -> bytes:
        head = {
            "version": VERSION,
            "log_offset": self.log_offset,
            "open": self.open,
            "producers": len(self.rows),
            "holders": self.holders,
        }
        return encode_snapshot(head, self.rows)

    def without_rows(self) -> "TableSnapshot":
        """To be remembered: the rows belong to the table."""
        return replace(self, rows=())


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """What a snapshot says."""

    log_offset: int
    open: str | None
    producers: dict[str, Producer]


def encode_row(producer_id: str, producer: Producer) -> bytes:
    name = producer_id.encode()
    requests = producer.packed()
    pieces = [
        bytes((len(name),)),
        name,
        _FLOOR.pack(bool(producer.floor), *(producer.floor or (0, 0))),
    ]
    pieces.append(_SHORT.pack(len(requests)))
    return b"".join([*pieces, *requests])


def decode(data: bytes, seen: float) -> RestoredTable:
    """Raises FormatError for anything that `encode` has not written; the producers were last seen
    at `seen`."""
    head, rows = decode_snapshot(data, VERSION, "producer table")
    try:
        producers = _rows(rows, head["producers"], seen)
        _name_holders(head.get("holders", ()), producers)
        _check_open(head["open"], producers)
        return RestoredTable(int(head["log_offset"]), head["open"], producers)
    except (KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise FormatError(f"producer table: it has another form: {error!r}") from error


def _name_holders(holders: Sequence[Sequence[Any]], producers: dict[str, Producer]) -> None:
    """Earlier versions do not write holders, and ignore them."""
    each = iter(producers.values())
    for holder, count in holders:
        for producer in islice(each, int(count)):
            producer.holder = str(holder)


def _check_open(name: str | None, producers: dict[str, Producer]) -> None:
    if name is not None:
        newest = producers[name].newest
        if newest is None or newest.complete:
            raise ValueError(f"no request of {name!r} continues")


def _rows(data: bytes, count: int, seen: float) -> dict[str, Producer]:
    producers: dict[str, Producer] = {}
    at = 0
    for _ in range(count):
        begin, length = at, data[at]
        at += 1 + length
        name = data[begin + 1 : at].decode()
        has_floor, epoch, sequence = _FLOOR.unpack_from(data, at)
        at += _FLOOR.size
        (number,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        requests = []
        for _ in range(number):
            end = at + _SHORT.unpack_from(data, at)[0]
            requests.append(data[at:end])
            at = end
        producer = Producer(requests, (epoch, sequence) if has_floor else None, seen)
        producer.row = data[begin:at]
        producers[name] = producer
    if at != len(data) or len(producers) != count:
        raise ValueError(f"{len(producers)} producers of {count}, {len(data) - at} bytes left")
    return producers
