"""Each byte of a small store turned, one at a time: what is served is right or nothing, what is not
served is named, and nothing beside the turned byte is lost.

Here a sample of the bytes; all of them, in ten minutes of one processor, with
TANDEMLOG_EVERY_BYTE=1 pytest -o faulthandler_timeout=0 on this file. Masks change from byte to
byte, so each bit of a field comes up. What no check can see has a function of its own here, which
says why.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.flipped_stores import IDLE, Base, Place, Served, Where, base_store, verified
from fakes.stores import DIRECTORY
from tandemlog.format.files.queue_unit import UNIT_SIZE
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import StoreError

PARTS = int(os.environ.get("TANDEMLOG_EVERY_BYTE", "0"))
SAMPLE = 151
"""One byte of so many where nothing else is asked for."""

_BASES: dict[tuple[bool, bool], Base] = {}


def base_of(*, clean: bool, property_crc: bool) -> Base:
    key = clean, property_crc
    if key not in _BASES:
        _BASES[key] = base_store(clean=clean, property_crc=property_crc)
    return _BASES[key]


def sampled(base: Base, *folders: str, every: int = SAMPLE) -> Iterator[tuple[Place, int]]:
    step = PARTS or every
    for number, place in enumerate(base.places(*folders)):
        if number % step == step // 2:
            turn = number // step
            yield place, 0xFF if turn % 3 == 0 else 1 << (turn % 8)


def log_offset(path: Path, at: int) -> int:
    return int(path.name) + at


def record_at(base: Base, offset: int) -> Where | None:
    """Which record has the byte of the log at `offset`."""
    for where, (start, end) in zip(base.offsets, base.spans, strict=True):
        if start <= offset < end:
            return where
    return None


def has_no_effect(base: Base, path: Path, at: int) -> bool:
    """Bytes that hold nothing: behind the end of the log, behind the head of a BLANK and in its
    size (which is what is left of the file, whatever it says), units and entries that are not
    there yet, the count of used slots of an index file (which nobody reads, and which versions of
    RocketMQ count differently), the process in the file abort, and the end of a text's last
    line."""
    name, old = str(path.relative_to(DIRECTORY)), base.contents[path][at]
    if name.startswith("commitlog/"):
        offset = log_offset(path, at)
        behind = offset - max((end for end in base.ends if end <= offset), default=0)
        in_magic_of_blank = 4 <= behind < 8 and offset < max(base.ends)
        return record_at(base, offset) is None and not in_magic_of_blank
    if name.startswith("index/") and at in SLOT_COUNT:
        return True
    if name.startswith(("consumequeue/", "index/")):
        return old == 0
    return name == "abort" or (name.startswith("tandemlog/") and at == len(base.contents[path]) - 1)


SLOT_COUNT = range(32, 36)
QUEUE_OFFSET = 20
"""Where a record has its number in its queue."""
NOT_COVERED = ("config/", "tandemlog/log-identity.json")
"""RocketMQ's JSON has no checksum: a letter that became another letter, or a digit another digit,
is a name or a number all the same. Nor have the ids of terms, without which an open does too."""


def hold(base: Base, place: Place, mask: int) -> None:
    """What must hold of the store with this byte turned, or these that hold nothing."""
    path, at, count = place
    name = str(path.relative_to(DIRECTORY))
    what = f"{name} byte {at} mask {mask:#x}"
    files = base.turned(path, at, mask, count)
    try:
        faults = [str(fault) for fault in verified(base, files).faults]
    except StoreError as fault:
        faults = [str(fault)]
    expired = expired_by(base, files, path, at)
    served = Served(base, files)
    assert not served.wrong, (what, served.wrong)
    if not served.opened:
        assert any(path.name in each or "config" in each for each in served.named), what
        return
    if name.startswith("commitlog/"):
        _hold_log(base, served, path, at, what)
    else:
        assert not served.altered_in_queues(), what
        missing = set(served.missing()) - expired
        assert not missing, (what, missing, served.named)
        assert faults or not served.missing(), f"verify says nothing of {what}"
    if served.idle != IDLE[2]:
        assert any(path.name in each for each in served.named), (what, served.idle, served.named)
    if not faults and not has_no_effect(base, path, at):
        uncovered = (
            name.startswith(NOT_COVERED)
            or _is_time_of_checkpoint(name, at)
            or _is_first_of_index(base, name, at)
            or _has_no_crc(base, path, at)
        )
        assert uncovered, f"verify says nothing of {what}"


def expired_by(base: Base, files: MemoryFiles, path: Path, at: int) -> set[Where]:
    """The message whose unit points below the begin of the log now. It looks like one that has
    expired with the files before, and is not served: nothing but the log itself, which no reader
    goes through, knows better. `verify` names it, and `rebuild` has it back."""
    parts = path.relative_to(DIRECTORY).parts
    if parts[0] != "consumequeue":
        return set()
    unit = at - at % UNIT_SIZE
    (physical,) = struct.unpack_from(">q", files.content(path), unit)
    number = (int(path.name) + unit) // UNIT_SIZE
    begin = min(int(each.name) for each in base.contents if each.parent.name == "commitlog")
    return {(parts[1], int(parts[2]), number)} if 0 <= physical < begin else set()


def _hold_log(base: Base, served: Served, path: Path, at: int, what: str) -> None:
    hit = {record_at(base, log_offset(path, at))}
    altered, missing = served.altered_in_queues(), served.missing()
    assert set(altered) <= hit, (what, altered)
    if base.config.property_crc:
        assert not altered, (what, "served with a byte turned")
        assert not served.altered, (what, "served by key or position with a byte turned")
    assert set(missing) <= hit, (what, missing, served.named)
    assert not missing or served.named, (what, "not served, and not named")


def _has_no_crc(base: Base, path: Path, at: int) -> bool:
    """Without `property_crc`: flag, times, hosts and the like of a record, and its properties but
    for the keys and tags that are indexed."""
    if base.config.property_crc or path.parent.name != "commitlog":
        return False
    where = record_at(base, log_offset(path, at))
    if where is None:
        return False
    within = log_offset(path, at) - base.offsets[where]
    return 16 <= within < 20 or 36 <= within < 84 or within >= base.texts[where]


def _is_time_of_checkpoint(name: str, at: int) -> bool:
    """A time within a day of the right one, an offset below the log's end: it can be. What depends
    on them is only where a RocketMQ broker begins to recover."""
    return name == "checkpoint" and at < 48


def _is_first_of_index(base: Base, name: str, at: int) -> bool:
    """The time of a file's first entry counts from the end of the file before, which may go."""
    first = 40 + 4 * base.config.index_slots + 20
    return name.startswith("index/") and first + 12 <= at < first + 16


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("property_crc", [False, True], ids=["plain", "property_crc"])
def test_the_log(*, clean: bool, property_crc: bool) -> None:
    base = base_of(clean=clean, property_crc=property_crc)
    for place, mask in sampled(base, "commitlog"):
        hold(base, place, mask)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("folders", [("consumequeue", "index"), ("tandemlog", "config", "epoch")])
def test_what_is_derived_and_what_is_small(*, clean: bool, folders: tuple[str, ...]) -> None:
    base = base_of(clean=clean, property_crc=False)
    for place, mask in sampled(base, *folders, every=61):
        hold(base, place, mask)


def test_the_checkpoint() -> None:
    base = base_of(clean=True, property_crc=False)
    for place, mask in sampled(base, "checkpoint", "lock", "abort", every=509):
        hold(base, place, mask)


@pytest.mark.parametrize("queue", [("audit", 1), ("orders", 1)])
def test_every_bit_of_the_number_of_the_last_record_of_a_queue(queue: tuple[str, int]) -> None:
    """Nothing after it contradicts it. Believed, it would make units for messages that never were:
    2^60 of them cannot be made, and a search by time would look at each of 2^40."""
    base = base_of(clean=True, property_crc=False)
    last = max((where for where in base.offsets if where[:2] == queue), key=lambda each: each[2])
    file_size = base.config.commit_log_file_size
    file, at = divmod(base.offsets[last] + QUEUE_OFFSET, file_size)
    path = DIRECTORY / "commitlog" / f"{file * file_size:020d}"
    for bit in range(64):
        hold(base, (path, at + bit // 8, 1), 1 << bit % 8)


def test_a_unit_that_points_below_the_log_looks_expired_and_verify_names_it() -> None:
    base = base_of(clean=False, property_crc=False)
    path = DIRECTORY / "consumequeue" / "audit" / "1" / f"{0:020d}"
    files = base.turned(path, 6, 0x40)
    assert expired_by(base, files, path, 6) == {("audit", 1, 0)}
    hold(base, (path, 6, 1), 0x40)


def test_two_queues_that_took_each_others_place() -> None:
    base = base_of(clean=True, property_crc=False)
    one, other = (
        DIRECTORY / "consumequeue" / each / "0" / f"{0:020d}" for each in ("orders", "audit")
    )
    files = base.turned(one, 0, 0)
    files.content(one)[:], files.content(other)[:] = (
        bytes(files.content(other)), bytes(files.content(one)),
    )  # fmt: skip
    served = Served(base, files)
    assert not served.wrong
    assert not served.altered_in_queues()
    assert not served.missing()
    assert any("where its record is not" in each or "damaged" in each for each in served.named)
