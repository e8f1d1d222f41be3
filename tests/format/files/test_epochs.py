"""Epoch tables: changes, the consistent point of two logs, the file's text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry, EpochTable, decode_epochs


def table(*terms: tuple[int, int]) -> EpochTable:
    return EpochTable(EpochEntry(epoch, start) for epoch, start in terms)


THREE = table((1, 0), (4, 1000), (5, 1700))
GOLDEN = b"3\n989759746\n1-0\n2-431694\n3-737788\n"


@st.composite
def tables(draw: st.DrawFn) -> EpochTable:
    starts = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=6)))
    epochs = sorted(draw(st.sets(st.integers(0, 2**31), min_size=len(starts), max_size=9)))
    return table(*zip(epochs, starts, strict=False))


def test_text_as_rocketmq_wrote_it() -> None:
    assert decode_epochs(GOLDEN) == table((1, 0), (2, 431694), (3, 737788))
    assert decode_epochs(GOLDEN).encode() == GOLDEN


@given(tables())
def test_text_round_trip(some: EpochTable) -> None:
    assert decode_epochs(some.encode()) == some
    assert hash(decode_epochs(some.encode())) == hash(some)


@pytest.mark.parametrize(
    "text", [b"1\n0\n7-100\n", b"1\n0\n7-100", b"1\r\n0\r\n7-100\r\n", b"1\n0\n 7-100 \n\n"]
)
def test_crc_0_is_not_checked(text: bytes) -> None:
    assert decode_epochs(text) == table((7, 100))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"", "line 1"),
        (b"x\n0\n", "line 1"),
        (b"1\n", "line 2"),
        (b"1\nx\n1-0\n", "line 2"),
        (b"1\n5\n1-0\n", "line 2: CRC 5"),
        (b"2\n0\n1-0\n", "says 2 entries, there are 1"),
        (b"1\n0\n1-0\n2-5\n", "says 1 entries, there are 2"),
        (b"1\n0\n10\n", "line 3"),
        (b"2\n0\n1-0\n2-x\n", "line 4: start"),
        (b"1\n0\n-1-0\n", "line 3: epoch"),
        (b"2\n0\n2-0\n1-5\n", "cannot follow"),
        (b"2\n0\n1-5\n2-5\n", "cannot follow"),
        (GOLDEN.replace(b"737788", b"737789"), "line 2: CRC"),
    ],
)
def test_names_the_line_that_is_wrong(text: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        decode_epochs(text)


def test_append() -> None:
    assert EpochTable().append(1, 0) == table((1, 0))
    assert THREE.append(6, 2000) == table((1, 0), (4, 1000), (5, 1700), (6, 2000))
    assert THREE.append(5, 1700) is THREE


def test_append_replaces_terms_in_which_nothing_was_written() -> None:
    assert THREE.append(6, 1700) == table((1, 0), (4, 1000), (6, 1700))
    assert THREE.append(6, 500) == table((1, 0), (6, 500))
    assert THREE.append(6, 0) == table((6, 0))


@pytest.mark.parametrize(("epoch", "start"), [(5, 1800), (4, 1000), (5, 1600), (1, 5000)])
def test_append_refuses_an_old_master(epoch: int, start: int) -> None:
    with pytest.raises(FormatError, match=f"epoch {epoch} from {start} is not newer"):
        THREE.append(epoch, start)


def test_refuses_negative_values() -> None:
    with pytest.raises(FormatError):
        EpochTable().append(-1, 0)
    with pytest.raises(FormatError):
        EpochTable().append(1, -1)


def test_truncate_suffix() -> None:
    assert THREE.truncate_suffix(1701) == THREE
    assert THREE.truncate_suffix(1700) == table((1, 0), (4, 1000))
    assert THREE.truncate_suffix(0) == EpochTable()


def test_truncate_prefix() -> None:
    assert THREE.truncate_prefix(999) == THREE
    assert THREE.truncate_prefix(1000) == table((4, 1000), (5, 1700))
    assert THREE.truncate_prefix(10**9) == table((5, 1700))
    assert EpochTable().truncate_prefix(5) == EpochTable()


def test_where_an_offset_belongs() -> None:
    later = THREE.truncate_prefix(1000)
    found = [later.entry_at(at) for at in (999, 1000, 1699, 1700, 10**9)]
    assert [each and each.epoch for each in found] == [None, 4, 4, 5, 5]
    assert [later.end_of(at) for at in (999, 1000, 1699, 1700)] == [1000, 1700, 1700, None]
    assert later.entry_at(1200) == EpochEntry(4, 1000)
    assert (later.last, EpochTable().last) == (EpochEntry(5, 1700), None)
    assert (len(later), len(EpochTable())) == (2, 0)
    assert repr(later) == "EpochTable(4-1000, 5-1700)"


@pytest.mark.parametrize(
    ("mine", "my_end", "masters", "masters_end", "expected"),
    [
        (THREE, 1900, THREE, 2000, 1900),
        (THREE, 1900, THREE, 1800, 1800),
        (THREE, 1900, THREE.append(6, 1750), 3000, 1750),
        (THREE.append(6, 1750), 3000, THREE, 1900, 1750),
        (THREE, 1900, table((1, 0), (4, 1000), (6, 1500)), 1600, 1500),
        (table((1, 0), (3, 800)), 1200, THREE, 1900, 800),
        (THREE, 1700, THREE, 1700, 1700),
        (THREE, 1900, THREE.truncate_prefix(1000), 2500, 1900),
        (THREE, 1900, table((1, 10), (4, 1001)), 1900, None),
        (THREE, 1900, EpochTable(), 1900, None),
        (EpochTable(), 1900, THREE, 1900, None),
    ],
)
def test_consistent_point(
    mine: EpochTable, my_end: int, masters: EpochTable, masters_end: int, expected: int | None
) -> None:
    assert mine.find_consistent_point(my_end, masters, masters_end) == expected


def test_a_term_of_which_no_byte_came_promises_nothing() -> None:
    mine = EpochTable().append(5, 500).append(6, 2000)
    theirs = EpochTable().append(5, 500).append(7, 1500)
    assert mine.find_consistent_point(1000, theirs, 3000) == 1000


def common_prefix(one: list[int], other: list[int]) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


@given(st.integers(0, 2**32))
def test_logs_are_equal_below_the_consistent_point(seed: int) -> None:
    """Logs of bytes named after their writer's epoch, that fork, truncate and go on."""
    pick = random.Random(seed)
    logs: list[tuple[EpochTable, list[int]]] = [(EpochTable(), []), (EpochTable(), [])]
    for epoch in range(1, 8):
        master = pick.randrange(2)
        terms, log = logs[master]
        terms = terms.append(epoch, len(log))
        log = log + [epoch] * pick.randrange(4)
        logs[master] = (terms, log)
        if pick.random() < 0.5:
            point = logs[1 - master][0].find_consistent_point(
                len(logs[1 - master][1]), terms, len(log)
            )
            copied = pick.randint(point or 0, len(log))
            logs[1 - master] = (terms.truncate_suffix(max(copied, 1)), log[:copied])
    (mine, my_log), (theirs, their_log) = logs
    point = mine.find_consistent_point(len(my_log), theirs, len(their_log))
    assert (point or 0) <= common_prefix(my_log, their_log)
